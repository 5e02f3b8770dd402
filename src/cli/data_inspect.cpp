namespace temper::cli { class Program; void add_data_inspect(Program&); void add_data_inspect(Program&) {} }
