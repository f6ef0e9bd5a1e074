//! Asking for memory before its turn. Where there is no such instruction, nothing is asked for.

/// How far ahead of a pass in the order of memory the cache nearest to the processor is asked to have it.
const NEAR_BYTES: usize = 2 * 1024;
/// The same of the cache behind that one. It takes more requests at a time, and asked as early as this it crosses into the
/// next pages, where a processor that fetches ahead by itself stops at the end of each.
const FAR_BYTES: usize = 16 * 1024;
const LINE_BYTES: usize = 64;

/// Asks for all of what will be needed soon: what lies apart would else be waited for one by one.
pub(in super::super) fn prefetch<T>(items: &[T]) {
    let first = items.as_ptr().cast::<u8>();
    // From the beginning of the line in which the first lies, so that the last one's is among them.
    let before = first.addr() % LINE_BYTES;
    for offset in (0..before + size_of_val(items)).step_by(LINE_BYTES) {
        near(first.wrapping_sub(before).wrapping_add(offset));
    }
}

/// Asks for what follows a line of memory some lines later. Called for each line, each is asked for twice.
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
    // SAFETY: every processor of this kind has the instruction; it is a hint, which reads nothing and faults nowhere.
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
