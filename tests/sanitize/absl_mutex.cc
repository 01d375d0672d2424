// Linked into every program of a ThreadSanitizer build. Debian's libabsl is not instrumented, so
// ThreadSanitizer sees no absl::Mutex and takes all that one guards, in our code and in what gRPC
// hands from one thread to another, for a race. These definitions stand in front of the library's:
// they call it and report what it synchronises.
//
// Whoever gives a mutex back evaluates the conditions of those who wait for it, still holding it,
// inside the library. So the library gets each condition wrapped: the evaluating thread then has
// what earlier holders did, and later holders have what it did.

#include <cstdio>
#include <cstdlib>
#include <string>

#include <absl/synchronization/mutex.h>
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

namespace {

#define ZEROD_TEXT(x) #x
#define ZEROD_EXPAND(x) ZEROD_TEXT(x)

// Mangled absl::NAME, e.g. Real("5Mutex4LockEv"). The inline namespace differs between packages.
template <typename Function>
Function* Real(const char* name) {
  const std::string space = ZEROD_EXPAND(ABSL_OPTION_INLINE_NAMESPACE_NAME);
  const bool is_const = *name == 'K';
  const std::string symbol = std::string(is_const ? "_ZNK4absl" : "_ZN4absl") +
                             std::to_string(space.size()) + space + (is_const ? name + 1 : name);
  void* address = dlsym(RTLD_NEXT, symbol.c_str());
  if (address == nullptr) {
    std::fprintf(stderr, "libabsl has no %s\n", symbol.c_str());
    std::abort();
  }
  return reinterpret_cast<Function*>(address);
}

// One condition of one waiter, for the time of its wait.
class HeldCondition {
 public:
  HeldCondition(absl::Mutex* mutex, const absl::Condition* condition)
      : mutex_(mutex), condition_(condition), wrapped_(&HeldCondition::Eval, this) {
    __tsan_release(this);  // the condition may look at what its waiter hasn't released otherwise
  }
  const absl::Condition& wrapped() const { return wrapped_; }

 private:
  // Not instrumented, and void* as the library needs no instrumented code to call that: the library
  // hands the object itself from thread to thread.
  __attribute__((no_sanitize("thread"))) static bool Eval(void* object) {
    auto* const held = static_cast<HeldCondition*>(object);
    __tsan_acquire(held->mutex_);
    __tsan_acquire(held);
    const bool holds = held->condition_->Eval();
    __tsan_release(held->mutex_);
    return holds;
  }

  absl::Mutex* mutex_;
  const absl::Condition* condition_;
  absl::Condition wrapped_;
};

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  static auto* const real = Real<void(Mutex*)>("5Mutex4LockEv");
  real(this);
  __tsan_acquire(this);
}

bool Mutex::TryLock() {
  static auto* const real = Real<bool(Mutex*)>("5Mutex7TryLockEv");
  const bool locked = real(this);
  if (locked) __tsan_acquire(this);
  return locked;
}

void Mutex::Unlock() {
  static auto* const real = Real<void(Mutex*)>("5Mutex6UnlockEv");
  __tsan_release(this);
  real(this);
}

void Mutex::ReaderLock() {
  static auto* const real = Real<void(Mutex*)>("5Mutex10ReaderLockEv");
  real(this);
  __tsan_acquire(this);
}

void Mutex::ReaderUnlock() {
  static auto* const real = Real<void(Mutex*)>("5Mutex12ReaderUnlockEv");
  __tsan_release(this);
  real(this);
}

// A wait gives the mutex back and takes it again inside the library.
void Mutex::Await(const Condition& condition) {
  static auto* const real = Real<void(Mutex*, const Condition&)>("5Mutex5AwaitERKNS0_9ConditionE");
  const HeldCondition held(this, &condition);
  __tsan_release(this);
  real(this, held.wrapped());
  __tsan_acquire(this);
}

void Mutex::LockWhen(const Condition& condition) {
  static auto* const real =
      Real<void(Mutex*, const Condition&)>("5Mutex8LockWhenERKNS0_9ConditionE");
  const HeldCondition held(this, &condition);
  real(this, held.wrapped());
  __tsan_acquire(this);
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  static auto* const real = Real<bool(Mutex*, const Condition&, Duration)>(
      "5Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE");
  const HeldCondition held(this, &condition);
  __tsan_release(this);
  const bool holds = real(this, held.wrapped(), timeout);
  __tsan_acquire(this);
  return holds;
}

bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  static auto* const real = Real<bool(Mutex*, const Condition&, Time)>(
      "5Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE");
  const HeldCondition held(this, &condition);
  __tsan_release(this);
  const bool holds = real(this, held.wrapped(), deadline);
  __tsan_acquire(this);
  return holds;
}

void CondVar::Wait(Mutex* mutex) {
  static auto* const real = Real<void(CondVar*, Mutex*)>("7CondVar4WaitEPNS0_5MutexE");
  __tsan_release(mutex);
  real(this, mutex);
  __tsan_acquire(mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  static auto* const real = Real<bool(CondVar*, Mutex*, Duration)>(
      "7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE");
  __tsan_release(mutex);
  const bool timed_out = real(this, mutex, timeout);
  __tsan_acquire(mutex);
  return timed_out;
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  static auto* const real =
      Real<bool(CondVar*, Mutex*, Time)>("7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE");
  __tsan_release(mutex);
  const bool timed_out = real(this, mutex, deadline);
  __tsan_acquire(mutex);
  return timed_out;
}

ABSL_NAMESPACE_END
}  // namespace absl
