// Written by tools/oracles/make_unicode_tables.py from the Unicode Character Database 16.
#include "tokenizers/unicode/later_characters.h"

#include <utility>

namespace temper::tokenizers {
namespace {

constexpr std::pair<std::string_view, std::string_view> kLater[] = {
    {"Cf", R"(\x{13439}-\x{1343F})"},
    {"L",
     R"(\x{1C89}-\x{1C8A}\x{A7CB}-\x{A7CD}\x{A7DA}-\x{A7DC}\x{105C0}-\x{105F3}\x{10D4A}-\x{10D65})"
     R"(\x{10D6F}-\x{10D85}\x{10EC2}-\x{10EC4}\x{1123F}-\x{11240}\x{11380}-\x{11389}\x{1138B}\x{1138E})"
     R"(\x{11390}-\x{113B5}\x{113B7}\x{113D1}\x{113D3}\x{11BC0}-\x{11BE0}\x{11F02}\x{11F04}-\x{11F10})"
     R"(\x{11F12}-\x{11F33}\x{1342F}\x{13441}-\x{13446}\x{13460}-\x{143FA}\x{16100}-\x{1611D})"
     R"(\x{16D40}-\x{16D6C}\x{18CFF}\x{1B132}\x{1B155}\x{1DF25}-\x{1DF2A}\x{1E030}-\x{1E06D})"
     R"(\x{1E4D0}-\x{1E4EB}\x{1E5D0}-\x{1E5ED}\x{1E5F0}\x{2B739}\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})"},
    {"Ll", R"(\x{1C8A}\x{A7CD}\x{A7DB}\x{10D70}-\x{10D85}\x{1DF25}-\x{1DF2A})"},
    {"Lm", R"(\x{10D4E}\x{10D6F}\x{16D40}-\x{16D42}\x{16D6B}-\x{16D6C}\x{1E030}-\x{1E06D}\x{1E4EB})"},
    {"Lo",
     R"(\x{105C0}-\x{105F3}\x{10D4A}-\x{10D4D}\x{10D4F}\x{10EC2}-\x{10EC4}\x{1123F}-\x{11240})"
     R"(\x{11380}-\x{11389}\x{1138B}\x{1138E}\x{11390}-\x{113B5}\x{113B7}\x{113D1}\x{113D3})"
     R"(\x{11BC0}-\x{11BE0}\x{11F02}\x{11F04}-\x{11F10}\x{11F12}-\x{11F33}\x{1342F}\x{13441}-\x{13446})"
     R"(\x{13460}-\x{143FA}\x{16100}-\x{1611D}\x{16D43}-\x{16D6A}\x{18CFF}\x{1B132}\x{1B155})"
     R"(\x{1E4D0}-\x{1E4EA}\x{1E5D0}-\x{1E5ED}\x{1E5F0}\x{2B739}\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})"},
    {"Lu", R"(\x{1C89}\x{A7CB}-\x{A7CC}\x{A7DA}\x{A7DC}\x{10D50}-\x{10D65})"},
    {"M",
     R"(\x{897}\x{CF3}\x{ECE}\x{10D69}-\x{10D6D}\x{10EFC}-\x{10EFF}\x{11241}\x{113B8}-\x{113C0}\x{113C2})"
     R"(\x{113C5}\x{113C7}-\x{113CA}\x{113CC}-\x{113D0}\x{113D2}\x{113E1}-\x{113E2}\x{11F00}-\x{11F01})"
     R"(\x{11F03}\x{11F34}-\x{11F3A}\x{11F3E}-\x{11F42}\x{11F5A}\x{13440}\x{13447}-\x{13455})"
     R"(\x{1611E}-\x{1612F}\x{1E08F}\x{1E4EC}-\x{1E4EF}\x{1E5EE}-\x{1E5EF})"},
    {"Mc",
     R"(\x{CF3}\x{113B8}-\x{113BA}\x{113C2}\x{113C5}\x{113C7}-\x{113CA}\x{113CC}-\x{113CD}\x{113CF}\x{11F03})"
     R"(\x{11F34}-\x{11F35}\x{11F3E}-\x{11F3F}\x{11F41}\x{1612A}-\x{1612C})"},
    {"Mn",
     R"(\x{897}\x{ECE}\x{10D69}-\x{10D6D}\x{10EFC}-\x{10EFF}\x{11241}\x{113BB}-\x{113C0}\x{113CE}\x{113D0})"
     R"(\x{113D2}\x{113E1}-\x{113E2}\x{11F00}-\x{11F01}\x{11F36}-\x{11F3A}\x{11F40}\x{11F42}\x{11F5A})"
     R"(\x{13440}\x{13447}-\x{13455}\x{1611E}-\x{16129}\x{1612D}-\x{1612F}\x{1E08F}\x{1E4EC}-\x{1E4EF})"
     R"(\x{1E5EE}-\x{1E5EF})"},
    {"N",
     R"(\x{10D40}-\x{10D49}\x{116D0}-\x{116E3}\x{11BF0}-\x{11BF9}\x{11F50}-\x{11F59}\x{16130}-\x{16139})"
     R"(\x{16D70}-\x{16D79}\x{1CCF0}-\x{1CCF9}\x{1D2C0}-\x{1D2D3}\x{1E4F0}-\x{1E4F9}\x{1E5F1}-\x{1E5FA})"},
    {"Nd",
     R"(\x{10D40}-\x{10D49}\x{116D0}-\x{116E3}\x{11BF0}-\x{11BF9}\x{11F50}-\x{11F59}\x{16130}-\x{16139})"
     R"(\x{16D70}-\x{16D79}\x{1CCF0}-\x{1CCF9}\x{1E4F0}-\x{1E4F9}\x{1E5F1}-\x{1E5FA})"},
    {"No", R"(\x{1D2C0}-\x{1D2D3})"},
    {"P",
     R"(\x{1B4E}-\x{1B4F}\x{1B7F}\x{10D6E}\x{113D4}-\x{113D5}\x{113D7}-\x{113D8}\x{11B00}-\x{11B09}\x{11BE1})"
     R"(\x{11F43}-\x{11F4F}\x{16D6D}-\x{16D6F}\x{1E5FF})"},
    {"Pd", R"(\x{10D6E})"},
    {"Po", R"(\x{1B4E}-\x{1B4F}\x{1B7F}\x{113D4}-\x{113D5}\x{113D7}-\x{113D8}\x{11B00}-\x{11B09}\x{11BE1})"
           R"(\x{11F43}-\x{11F4F}\x{16D6D}-\x{16D6F}\x{1E5FF})"},
    {"S",
     R"(\x{2427}-\x{2429}\x{2FFC}-\x{2FFF}\x{31E4}-\x{31E5}\x{31EF}\x{10D8E}-\x{10D8F}\x{1CC00}-\x{1CCEF})"
     R"(\x{1CD00}-\x{1CEB3}\x{1F6DC}\x{1F774}-\x{1F776}\x{1F77B}-\x{1F77F}\x{1F7D9}\x{1F8B2}-\x{1F8BB})"
     R"(\x{1F8C0}-\x{1F8C1}\x{1FA75}-\x{1FA77}\x{1FA87}-\x{1FA89}\x{1FA8F}\x{1FAAD}-\x{1FAAF})"
     R"(\x{1FABB}-\x{1FABF}\x{1FAC6}\x{1FACE}-\x{1FACF}\x{1FADA}-\x{1FADC}\x{1FADF}\x{1FAE8}-\x{1FAE9})"
     R"(\x{1FAF7}-\x{1FAF8}\x{1FBCB}-\x{1FBEF})"},
    {"Sm", R"(\x{10D8E}-\x{10D8F})"},
    {"So",
     R"(\x{2427}-\x{2429}\x{2FFC}-\x{2FFF}\x{31E4}-\x{31E5}\x{31EF}\x{1CC00}-\x{1CCEF}\x{1CD00}-\x{1CEB3})"
     R"(\x{1F6DC}\x{1F774}-\x{1F776}\x{1F77B}-\x{1F77F}\x{1F7D9}\x{1F8B2}-\x{1F8BB}\x{1F8C0}-\x{1F8C1})"
     R"(\x{1FA75}-\x{1FA77}\x{1FA87}-\x{1FA89}\x{1FA8F}\x{1FAAD}-\x{1FAAF}\x{1FABB}-\x{1FABF}\x{1FAC6})"
     R"(\x{1FACE}-\x{1FACF}\x{1FADA}-\x{1FADC}\x{1FADF}\x{1FAE8}-\x{1FAE9}\x{1FAF7}-\x{1FAF8})"
     R"(\x{1FBCB}-\x{1FBEF})"},
    {"Alphabetic",
     R"(\x{363}-\x{36F}\x{897}\x{C04}\x{CF3}\x{F82}-\x{F83}\x{1C89}-\x{1C8A}\x{1DD3}-\x{1DE6})"
     R"(\x{A7CB}-\x{A7CD}\x{A7DA}-\x{A7DC}\x{105C0}-\x{105F3}\x{10D4A}-\x{10D65}\x{10D69}\x{10D6F}-\x{10D85})"
     R"(\x{10EC2}-\x{10EC4}\x{10EFC}\x{11080}-\x{11081}\x{1123F}-\x{11241}\x{11380}-\x{11389}\x{1138B})"
     R"(\x{1138E}\x{11390}-\x{113B5}\x{113B7}-\x{113C0}\x{113C2}\x{113C5}\x{113C7}-\x{113CA})"
     R"(\x{113CC}-\x{113CD}\x{113D1}\x{113D3}\x{11BC0}-\x{11BE0}\x{11F00}-\x{11F10}\x{11F12}-\x{11F3A})"
     R"(\x{11F3E}-\x{11F40}\x{1342F}\x{13441}-\x{13446}\x{13460}-\x{143FA}\x{16100}-\x{1612E})"
     R"(\x{16D40}-\x{16D6C}\x{18CFF}\x{1B132}\x{1B155}\x{1DF25}-\x{1DF2A}\x{1E030}-\x{1E06D}\x{1E08F})"
     R"(\x{1E4D0}-\x{1E4EB}\x{1E5D0}-\x{1E5ED}\x{1E5F0}\x{2B739}\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})"},
    {"Uppercase", R"(\x{1C89}\x{A7CB}-\x{A7CC}\x{A7DA}\x{A7DC}\x{10D50}-\x{10D65})"},
    {"Lowercase",
     R"(\x{10FC}\x{1C8A}\x{A7CD}\x{A7DB}\x{A7F2}-\x{A7F4}\x{AB69}\x{10D70}-\x{10D85}\x{1DF25}-\x{1DF2A})"
     R"(\x{1E030}-\x{1E06D})"},
    {"Ideographic", R"(\x{18CFF}\x{2B739}\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})"},
    {"Emoji",
     R"(\x{1F6DC}\x{1FA75}-\x{1FA77}\x{1FA87}-\x{1FA89}\x{1FA8F}\x{1FAAD}-\x{1FAAF}\x{1FABB}-\x{1FABF})"
     R"(\x{1FAC6}\x{1FACE}-\x{1FACF}\x{1FADA}-\x{1FADC}\x{1FADF}\x{1FAE8}-\x{1FAE9}\x{1FAF7}-\x{1FAF8})"},
    {"Extended_Pictographic",
     R"(\x{1F6DC}\x{1F774}-\x{1F776}\x{1F77B}-\x{1F77F}\x{1F7D9}\x{1F8B2}-\x{1F8BB}\x{1F8C0}-\x{1F8C1})"
     R"(\x{1FA75}-\x{1FA77}\x{1FA87}-\x{1FA89}\x{1FA8F}\x{1FAAD}-\x{1FAAF}\x{1FABB}-\x{1FABF}\x{1FAC6})"
     R"(\x{1FACE}-\x{1FACF}\x{1FADA}-\x{1FADC}\x{1FADF}\x{1FAE8}-\x{1FAE9}\x{1FAF7}-\x{1FAF8})"},
    {"sc:Arabic", R"(\x{897}\x{10EC2}-\x{10EC4}\x{10EFC}-\x{10EFF})"},
    {"sc:Cyrillic", R"(\x{1C89}-\x{1C8A}\x{1E030}-\x{1E06D}\x{1E08F})"},
    {"sc:Devanagari", R"(\x{11B00}-\x{11B09})"},
    {"sc:Egyptian_Hieroglyphs", R"(\x{1342F}\x{13439}-\x{13455}\x{13460}-\x{143FA})"},
    {"sc:Han", R"(\x{2B739}\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})"},
    {"sc:Hiragana", R"(\x{1B132})"},
    {"sc:Common",
     R"(\x{2427}-\x{2429}\x{2FFC}-\x{2FFF}\x{31E4}-\x{31E5}\x{31EF}\x{1CC00}-\x{1CCF9}\x{1CD00}-\x{1CEB3})"
     R"(\x{1D2C0}-\x{1D2D3}\x{1F6DC}\x{1F774}-\x{1F776}\x{1F77B}-\x{1F77F}\x{1F7D9}\x{1F8B2}-\x{1F8BB})"
     R"(\x{1F8C0}-\x{1F8C1}\x{1FA75}-\x{1FA77}\x{1FA87}-\x{1FA89}\x{1FA8F}\x{1FAAD}-\x{1FAAF})"
     R"(\x{1FABB}-\x{1FABF}\x{1FAC6}\x{1FACE}-\x{1FACF}\x{1FADA}-\x{1FADC}\x{1FADF}\x{1FAE8}-\x{1FAE9})"
     R"(\x{1FAF7}-\x{1FAF8}\x{1FBCB}-\x{1FBEF})"},
    {"sc:Kannada", R"(\x{CF3})"},
    {"sc:Katakana", R"(\x{1B155})"},
    {"sc:Lao", R"(\x{ECE})"},
    {"sc:Latin", R"(\x{A7CB}-\x{A7CD}\x{A7DA}-\x{A7DC}\x{1DF25}-\x{1DF2A})"}};

constexpr std::string_view kAssigned =
    R"(\x{897}\x{CF3}\x{ECE}\x{1B4E}-\x{1B4F}\x{1B7F}\x{1C89}-\x{1C8A}\x{2427}-\x{2429}\x{2FFC}-\x{2FFF})"
    R"(\x{31E4}-\x{31E5}\x{31EF}\x{A7CB}-\x{A7CD}\x{A7DA}-\x{A7DC}\x{105C0}-\x{105F3}\x{10D40}-\x{10D65})"
    R"(\x{10D69}-\x{10D85}\x{10D8E}-\x{10D8F}\x{10EC2}-\x{10EC4}\x{10EFC}-\x{10EFF}\x{1123F}-\x{11241})"
    R"(\x{11380}-\x{11389}\x{1138B}\x{1138E}\x{11390}-\x{113B5}\x{113B7}-\x{113C0}\x{113C2}\x{113C5})"
    R"(\x{113C7}-\x{113CA}\x{113CC}-\x{113D5}\x{113D7}-\x{113D8}\x{113E1}-\x{113E2}\x{116D0}-\x{116E3})"
    R"(\x{11B00}-\x{11B09}\x{11BC0}-\x{11BE1}\x{11BF0}-\x{11BF9}\x{11F00}-\x{11F10}\x{11F12}-\x{11F3A})"
    R"(\x{11F3E}-\x{11F5A}\x{1342F}\x{13439}-\x{13455}\x{13460}-\x{143FA}\x{16100}-\x{16139})"
    R"(\x{16D40}-\x{16D79}\x{18CFF}\x{1B132}\x{1B155}\x{1CC00}-\x{1CCF9}\x{1CD00}-\x{1CEB3})"
    R"(\x{1D2C0}-\x{1D2D3}\x{1DF25}-\x{1DF2A}\x{1E030}-\x{1E06D}\x{1E08F}\x{1E4D0}-\x{1E4F9})"
    R"(\x{1E5D0}-\x{1E5FA}\x{1E5FF}\x{1F6DC}\x{1F774}-\x{1F776}\x{1F77B}-\x{1F77F}\x{1F7D9})"
    R"(\x{1F8B2}-\x{1F8BB}\x{1F8C0}-\x{1F8C1}\x{1FA75}-\x{1FA77}\x{1FA87}-\x{1FA89}\x{1FA8F})"
    R"(\x{1FAAD}-\x{1FAAF}\x{1FABB}-\x{1FABF}\x{1FAC6}\x{1FACE}-\x{1FACF}\x{1FADA}-\x{1FADC}\x{1FADF})"
    R"(\x{1FAE8}-\x{1FAE9}\x{1FAF7}-\x{1FAF8}\x{1FBCB}-\x{1FBEF}\x{2B739}\x{2EBF0}-\x{2EE5D})"
    R"(\x{31350}-\x{323AF})";

}  // namespace

std::string_view later_characters(std::string_view property) {
  for (const auto& [name, items] : kLater)
    if (name == property) return items;
  return "";
}

std::string_view later_assigned() { return kAssigned; }

}  // namespace temper::tokenizers
