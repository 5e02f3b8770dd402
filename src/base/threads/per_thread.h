#pragma once
#include <pthread.h>

#include <memory>
#include <new>

namespace temper {

// A T for each thread that asks, made when it first does and destroyed with the thread. In place of a
// thread_local object with a destructor: where glibc finds no memory to remember such a destructor it ends
// the process, and this throws std::bad_alloc. Objects of this class live as long as the process.
template <class T>
class PerThread {
 public:
  PerThread() {
    if (::pthread_key_create(&key_, [](void* made) { delete static_cast<T*>(made); }) != 0)
      throw std::bad_alloc();
  }
  PerThread(const PerThread&) = delete;
  PerThread& operator=(const PerThread&) = delete;

  T& get() const {
    if (void* const there = ::pthread_getspecific(key_)) return *static_cast<T*>(there);
    std::unique_ptr<T> made(new T);
    if (::pthread_setspecific(key_, made.get()) != 0) throw std::bad_alloc();
    return *made.release();
  }

 private:
  pthread_key_t key_{};
};

}  // namespace temper
