//! Construction of cells: spherical k-means over a sample of the rows, and the reach of a search.

use larder_kernel::random::Random;

use super::{CENTERS_AT_ONCE, Centers, Ivf, MEASURED_LIMITS, ProbeMargin, RECALL_AIMED, within};
use crate::storage::vector::SPARSE_SHARE;
use crate::storage::vector::block::Blocks;
use crate::storage::vector::coarse::{Prefilter, Queries};
use crate::storage::vector::simd::{Level, Line, PANEL_ROWS};
use crate::storage::vector::sq8::Code;

/// The largest number of cells. Cell numbers, and row numbers in a block, fit into 16 bits.
const CELLS_MAX: usize = 4_096;
/// The number of sampled rows per cell.
const SAMPLE_PER_CELL: usize = 64;
/// The number of k-means rounds.
const ROUNDS: usize = 8;
/// The number of rows whose true neighbors determine the reach of a search.
const PROBES: usize = 256;
/// The number of neighbors per row: the largest measured limit, plus the row itself.
const NEIGHBORS: usize = MEASURED_LIMITS[MEASURED_LIMITS.len() - 1] + 1;

/// A row, by its block and its index in the block.
type Place = (usize, usize);

/// Pseudorandom numbers that are the same in every run, so that the same rows give the same cells.
struct Rng(Random);

impl Rng {
    /// Returns 32 random bits.
    fn bits(&mut self) -> u32 {
        u32::try_from(self.0.draw() >> 32).unwrap_or_default()
    }

    /// Returns a random number below `end`, which is above zero.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.bits()).unwrap_or_default() % end
    }

    /// Returns a random fraction of one.
    fn part(&mut self) -> f64 {
        f64::from(self.bits()) / 4_294_967_296.0
    }
}

impl Ivf {
    /// Builds the cells for the rows of these blocks, which have codes and are not all empty.
    pub(in super::super) fn of(level: Level, blocks: &Blocks, dimensions: usize) -> Self {
        let rows: usize = blocks.iter().map(|block| block.len()).sum();
        let count = rows.isqrt().clamp(1, CELLS_MAX);
        let mut rng = Rng(Random::new(0));
        let sample = Sample::of(blocks, dimensions, rows, count * SAMPLE_PER_CELL, &mut rng);
        let mut directions = sample.first_centers(level, count, &mut rng);
        let mut centers = Centers::of(&directions, dimensions);
        let mut nearest = sample.nearest(level, &centers);
        for _ in 0..ROUNDS {
            sample.move_to_members(&mut directions, &nearest, &mut rng);
            centers = Centers::of(&directions, dimensions);
            let moved = sample.nearest(level, &centers);
            if moved == nearest {
                break;
            }
            nearest = moved;
        }
        let mut sizes = vec![0_usize; count];
        nearest.iter().for_each(|cell| sizes[usize::from(*cell)] += 1);
        let (probe_margins, held) = probe_margins(level, &sample, &centers, &sizes, &mut rng);
        let sampled = sample.places.len();
        Self { centers, sizes, sampled, probe_margins, worth_while: held * SPARSE_SHARE <= sampled, rows }
    }
}

/// A sample of a collection's rows, with their codes in one array.
struct Sample<'a> {
    blocks: &'a Blocks,
    dimensions: usize,
    places: Vec<Place>,
    /// The codes in whole panels. The first row fills the gaps of the last panel.
    lines: Vec<Line>,
}

impl<'a> Sample<'a> {
    /// Returns `wanted` rows, or all rows if there are fewer. The selection does not depend on the order in
    /// which they were written.
    fn of(blocks: &'a Blocks, dimensions: usize, rows: usize, wanted: usize, rng: &mut Rng) -> Self {
        let wanted = wanted.min(rows);
        let mut places: Vec<Place> = Vec::with_capacity(wanted);
        let mut seen = 0;
        for (index, block) in blocks.iter().enumerate() {
            for row in 0..block.len() {
                // Selects each row with the probability of wanted rows among the remaining ones.
                if rng.below(rows - seen) < wanted - places.len() {
                    places.push((index, row));
                }
                seen += 1;
            }
        }
        let missing = places.len().next_multiple_of(PANEL_ROWS) - places.len();
        let filled = places.iter().chain(places.iter().take(1).cycle().take(missing));
        let lines = filled.flat_map(|(block, row)| blocks[*block].codes().row(*row)).copied().collect();
        Self { blocks, dimensions, places, lines }
    }

    fn panels(&self) -> impl Iterator<Item = &[Line]> {
        let panels = self.places.len().div_ceil(PANEL_ROWS).max(1);
        self.lines.chunks((self.lines.len() / panels).max(1))
    }

    /// Returns the nearest center of each row.
    fn nearest(&self, level: Level, centers: &Centers) -> Vec<u16> {
        let mut nearest: Vec<u16> = self.panels().flat_map(|panel| centers.nearest(level, panel)).collect();
        nearest.truncate(self.places.len());
        nearest
    }

    /// Adds a row's direction, from its codes.
    fn add(&self, (block, row): Place, direction: &mut [f32]) {
        let codes = self.blocks[block].codes();
        let scale = codes.scales(row / PANEL_ROWS)[row % PANEL_ROWS];
        for (number, code) in direction.iter_mut().zip(codes.signed(row)) {
            *number += f32::from(code) * scale;
        }
    }

    /// Selects the initial rows. Rows far from all selected ones are the most likely. This is k-means++ of
    /// Arthur and Vassilvitskii (SODA 2007), a few at a time as in k-means|| of Bahmani et al. (VLDB 2012).
    fn first_centers(&self, level: Level, count: usize, rng: &mut Rng) -> Vec<f32> {
        let mut directions = vec![0.0; count * self.dimensions];
        // The distance of each row to the nearest center is one minus the cosine, half of the squared
        // distance.
        let mut distances = vec![1.0_f32; self.places.len()];
        for chosen in directions.chunks_mut(CENTERS_AT_ONCE * self.dimensions) {
            let sums: Vec<f64> = distances
                .iter()
                .scan(0.0, |sum, distance| {
                    *sum += f64::from(*distance);
                    Some(*sum)
                })
                .collect();
            for direction in chosen.chunks_mut(self.dimensions) {
                let wanted = sums.last().copied().unwrap_or_default() * rng.part();
                let at = sums.partition_point(|sum| *sum <= wanted).min(self.places.len() - 1);
                self.add(self.places[at], direction);
                to_length_one(direction);
            }
            self.come_nearer(level, &Centers::of(chosen, self.dimensions), &mut distances);
        }
        directions
    }

    /// Updates the distances with some new centers, no more than one step compares.
    fn come_nearer(&self, level: Level, centers: &Centers, distances: &mut [f32]) {
        let Some(group) = centers.groups.first() else { return };
        let mut dots = [[0; PANEL_ROWS]; CENTERS_AT_ONCE];
        let rows = self.places.chunks(PANEL_ROWS).zip(distances.chunks_mut(PANEL_ROWS));
        for (panel, (places, distances)) in self.panels().zip(rows) {
            level.tile(panel, group.codes(), &mut dots);
            for (lane, ((block, row), distance)) in places.iter().zip(distances).enumerate() {
                let scale = self.blocks[*block].codes().scales(row / PANEL_ROWS)[row % PANEL_ROWS];
                for (center, dots) in dots.iter().enumerate().take(centers.count) {
                    let away = (1.0 - group.score(center, dots[lane], scale)).max(0.0);
                    *distance = if away < *distance { away } else { *distance };
                }
            }
        }
    }

    /// Moves each center to the mean of its rows. A center without rows, or whose rows cancel out, restarts
    /// at a row.
    fn move_to_members(&self, directions: &mut [f32], nearest: &[u16], rng: &mut Rng) {
        directions.fill(0.0);
        for (place, cell) in self.places.iter().zip(nearest) {
            self.add(*place, &mut directions[usize::from(*cell) * self.dimensions..][..self.dimensions]);
        }
        for direction in directions.chunks_mut(self.dimensions) {
            // Sums of directions are far above this, unless they cancel out.
            if direction.iter().all(|number| number.abs() < 1e-6) {
                direction.fill(0.0);
                self.add(self.places[rng.below(self.places.len())], direction);
            }
            to_length_one(direction);
        }
    }
}

impl Centers {
    /// Returns the nearest center of each given row.
    fn of_rows(&self, level: Level, blocks: &Blocks, places: &[Place]) -> Vec<u16> {
        let mut nearest = Vec::with_capacity(places.len() + PANEL_ROWS);
        for places in places.chunks(PANEL_ROWS) {
            let filled = places.iter().chain(places.iter().take(1).cycle()).take(PANEL_ROWS);
            let lines: Vec<Line> =
                filled.flat_map(|(block, row)| blocks[*block].codes().row(*row)).copied().collect();
            nearest.extend_from_slice(&self.nearest(level, &lines)[..places.len()]);
        }
        nearest
    }
}

fn to_length_one(direction: &mut [f32]) {
    let squared: f64 = direction.iter().map(|number| f64::from(*number) * f64::from(*number)).sum();
    // A fraction of a length of about one is within the range of f32.
    #[allow(clippy::cast_possible_truncation)]
    let scale = squared.sqrt().recip() as f32;
    direction.iter_mut().for_each(|number| *number *= scale);
}

/// Returns the reach of searches, and the average number of sampled rows in the cells within the first reach.
///
/// The neighbors are determined by codes. They differ from the true ones in few cases.
fn probe_margins(
    level: Level,
    sample: &Sample<'_>,
    centers: &Centers,
    sizes: &[usize],
    rng: &mut Rng,
) -> ([ProbeMargin; MEASURED_LIMITS.len()], usize) {
    let (blocks, places) = (sample.blocks, &sample.places);
    let probes: Vec<Place> = (0..PROBES.min(places.len())).map(|_| places[rng.below(places.len())]).collect();
    let codes: Vec<Code> = probes.iter().map(|(block, row)| blocks[*block].codes().code(*row)).collect();
    let scores: Vec<Vec<f32>> = codes.iter().map(|code| centers.scores(level, code)).collect();
    let gaps_of = |((probe, scores), neighbors): ((&Place, &Vec<f32>), Vec<Place>)| {
        let others: Vec<Place> = neighbors.into_iter().filter(|place| place != probe).collect();
        let best = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let cells = centers.of_rows(level, blocks, &others).into_iter();
        cells.map(|cell| best - scores[usize::from(cell)]).collect::<Vec<f32>>()
    };
    let neighbors = neighbors(level, blocks, &codes);
    let gaps: Vec<Vec<f32>> = probes.iter().zip(&scores).zip(neighbors).map(gaps_of).collect();
    let probe_margins = MEASURED_LIMITS.map(|limit| {
        let of_limit = gaps.iter().flat_map(|gaps| gaps.iter().take(limit)).copied();
        ProbeMargin { limit, below: below_enough(of_limit.collect()) }
    });
    let held = |scores: &Vec<f32>| {
        within(scores, probe_margins[0].below).into_iter().map(|cell| sizes[cell]).sum::<usize>()
    };
    (probe_margins, scores.iter().map(held).sum::<usize>() / scores.len().max(1))
}

/// Returns the smallest margin that includes the wanted share of the gaps.
fn below_enough(mut gaps: Vec<f32>) -> f32 {
    gaps.sort_by(f32::total_cmp);
    // The number of gaps is about ten thousand, so the casts are safe.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let at = (gaps.len() as f64 * RECALL_AIMED) as usize;
    gaps.get(at).or(gaps.last()).copied().unwrap_or_default()
}

/// Returns the rows with the best scores by code for each of some directions. The rows themselves are among
/// them.
fn neighbors(level: Level, blocks: &Blocks, codes: &[Code]) -> Vec<Vec<Place>> {
    let queries = Queries::new(level, codes);
    let mut prefilters: Vec<Prefilter> = codes.iter().map(|_| Prefilter::new(NEIGHBORS, None)).collect();
    let all = vec![None; codes.len()];
    for (index, block) in blocks.iter().enumerate() {
        queries.look(index, block, &all, &mut prefilters);
    }
    let best = |prefilter: Prefilter| {
        let kept = prefilter.into_most_promising(NEIGHBORS).into_iter();
        kept.map(|kept| (kept.block, kept.row)).collect()
    };
    prefilters.into_iter().map(best).collect()
}
