//! The limits of the machine's processor, to which searches are compared.
#![allow(unsafe_code)]

/// Instruction sets for which the limits are measured.
#[derive(Debug, Clone, Copy)]
enum Level {
    /// The baseline of every processor.
    Plain,
    /// AVX2, of processors that also have FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// Returns the best level of this processor.
    fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f") {
            return Self::Avx512;
        } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            return Self::Avx2;
        }
        Self::Plain
    }
}

/// Independent sums: enough to hide the latency of an addition or an FMA.
const LANES: usize = 192;

/// Adds all numbers at the speed of the memory, with the widest available instructions.
#[must_use]
pub(crate) fn read_all(numbers: &[f32]) -> f32 {
    match Level::best() {
        Level::Plain => sum(numbers),
        // SAFETY: the level was found on this processor.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { sum_avx2(numbers) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { sum_avx512(numbers) },
    }
}

/// Multiplies and adds `rounds` times at the speed of the registers, and returns the number of multiply-adds.
/// Without FMA, each is a multiplication and a separate addition.
#[must_use]
pub(crate) fn multiply_and_add(rounds: u32) -> u64 {
    let sums = match Level::best() {
        Level::Plain => {
            let mut sums = [1.0; LANES];
            step(rounds, &mut sums, |sum| sum * 0.999 + 0.999);
            sums
        }
        // SAFETY: the level was found on this processor; `best` asks for AVX2 and for FMA.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { fma_avx2(rounds) },
        // SAFETY: the level was found on this processor.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { fma_avx512(rounds) },
    };
    std::hint::black_box(sums);
    u64::from(rounds) * LANES as u64
}

#[inline(always)]
fn sum(numbers: &[f32]) -> f32 {
    let mut sums = [0.0_f32; 128];
    for numbers in numbers.as_chunks::<128>().0 {
        for (sum, number) in sums.iter_mut().zip(numbers) {
            *sum += number;
        }
    }
    sums.iter().sum()
}

#[inline(always)]
fn step(rounds: u32, sums: &mut [f32; LANES], step: impl Fn(f32) -> f32) {
    for _ in 0..rounds {
        for sum in sums.iter_mut() {
            *sum = step(*sum);
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_avx2(numbers: &[f32]) -> f32 {
    sum(numbers)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn sum_avx512(numbers: &[f32]) -> f32 {
    sum(numbers)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn fma_avx2(rounds: u32) -> [f32; LANES] {
    use std::arch::x86_64::{_mm256_fmadd_ps, _mm256_set1_ps, _mm256_storeu_ps};
    let factor = _mm256_set1_ps(0.999);
    let mut sums = [_mm256_set1_ps(1.0); 12];
    for _ in 0..rounds * 2 {
        for sum in &mut sums {
            *sum = _mm256_fmadd_ps(*sum, factor, factor);
        }
    }
    let mut out = [0.0; LANES];
    for (out, sum) in out.as_chunks_mut::<8>().0.iter_mut().zip(sums) {
        // SAFETY: eight numbers, which may be written; no alignment is asked for.
        unsafe { _mm256_storeu_ps(out.as_mut_ptr(), sum) };
    }
    out
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn fma_avx512(rounds: u32) -> [f32; LANES] {
    use std::arch::x86_64::{_mm512_fmadd_ps, _mm512_set1_ps, _mm512_storeu_ps};
    let factor = _mm512_set1_ps(0.999);
    let mut sums = [_mm512_set1_ps(1.0); 12];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm512_fmadd_ps(*sum, factor, factor);
        }
    }
    let mut out = [0.0; LANES];
    for (out, sum) in out.as_chunks_mut::<16>().0.iter_mut().zip(sums) {
        // SAFETY: sixteen numbers, which may be written; no alignment is asked for.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), sum) };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_their_measured_effect() {
        assert_eq!(read_all(&[0.5; 1_280]), 640.0);
        assert_eq!(multiply_and_add(100), 19_200);
    }
}
