//! Memory prefetching. On processors without such an instruction it does nothing.

/// The distance of the prefetch into the nearest cache, in a sequential pass.
const NEAR_BYTES: usize = 2 * 1024;
/// The distance of the prefetch into the next cache. This cache handles more concurrent requests. At this
/// distance a prefetch crosses into the next pages, where the hardware prefetcher of a processor stops.
const FAR_BYTES: usize = 16 * 1024;
const LINE_BYTES: usize = 64;

/// Prefetches all items, because scattered memory would otherwise be waited for one by one.
pub(in super::super) fn prefetch<T>(items: &[T]) {
    let first = items.as_ptr().cast::<u8>();
    // The loop starts at the beginning of the first item's cache line, so that it also covers the last item.
    let before = first.addr() % LINE_BYTES;
    for offset in (0..before + size_of_val(items)).step_by(LINE_BYTES) {
        near(first.wrapping_sub(before).wrapping_add(offset));
    }
}

/// Prefetches the memory some lines after a line. It is called for each line, so each is prefetched twice.
#[inline(always)]
pub(super) fn prefetch_ahead<T>(line: &T) {
    let line = std::ptr::from_ref(line).cast::<u8>();
    far(line.wrapping_add(FAR_BYTES));
    near(line.wrapping_add(NEAR_BYTES));
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn near(address: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: every processor of this architecture has the instruction. It is a hint that reads nothing and
    // cannot fault.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn far(address: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
    // SAFETY: as above.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) };
}

#[cfg(not(target_arch = "x86_64"))]
fn near(_: *const u8) {}

#[cfg(not(target_arch = "x86_64"))]
fn far(_: *const u8) {}
