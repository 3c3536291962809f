// A growable array of trivially copyable items. Unlike std::vector it grows by realloc, which
// remaps the pages of large blocks instead of copying them, so growing by a quarter is cheap.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <type_traits>
#include <utility>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace draftline {

// Lookups are random: huge pages avoid TLB misses.
inline void advise_huge_pages([[maybe_unused]] void* block, [[maybe_unused]] size_t bytes) {
#ifdef __linux__
  constexpr size_t kLarge = 4u << 20, kPage = 4096;
  if (bytes < kLarge) return;
  const size_t skip = -reinterpret_cast<uintptr_t>(block) % kPage;
  madvise(static_cast<char*>(block) + skip, (bytes - skip) / kPage * kPage, MADV_HUGEPAGE);
#endif
}

template <class T>
class Array {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Array() = default;
  ~Array() { std::free(items_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  void push_back(T item) {  // by value: it may be an item of this array
    if (size_ == capacity_) resize_block(size_ + size_ / 4 + 8);
    items_[size_++] = item;
  }

  void reserve_more(size_t more) {
    if (size_ + more > capacity_) resize_block(std::max(size_ + more, size_ + size_ / 4));
  }

  void fill(size_t size, T item) {  // must be empty
    reserve_more(size);
    std::fill(items_, items_ + size, item);
    size_ = size;
  }

  void swap(Array& other) {
    std::swap(items_, other.items_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

  void shrink_to_fit() {
    if (size_ > 0) resize_block(size_);
  }

  T& operator[](size_t at) { return items_[at]; }
  const T& operator[](size_t at) const { return items_[at]; }
  T& back() { return items_[size_ - 1]; }
  const T& back() const { return items_[size_ - 1]; }
  const T* data() const { return items_; }
  T* begin() { return items_; }
  T* end() { return items_ + size_; }
  const T* begin() const { return items_; }
  const T* end() const { return items_ + size_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  size_t nbytes() const { return capacity_ * sizeof(T); }

 private:
  void resize_block(size_t capacity) {
    void* const block = std::realloc(static_cast<void*>(items_), capacity * sizeof(T));
    if (!block) throw std::bad_alloc();
    advise_huge_pages(block, capacity * sizeof(T));
    items_ = static_cast<T*>(block);
    capacity_ = capacity;
  }

  T* items_ = nullptr;
  size_t size_ = 0, capacity_ = 0;
};

}  // namespace draftline
