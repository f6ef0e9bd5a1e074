//! A figure: two sides measured in turns, and their ratio.

use serde::Serialize;

use super::{Outcome, Plan};

/// The target of a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Target {
    AtMost(f64),
    AtLeast(f64),
}

/// The result of a figure compared with its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Pass,
    Short,
    /// The figure has no target; it is a comparison only.
    Information,
}

impl Verdict {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Short => "short",
            Self::Information => "information",
        }
    }
}

impl Target {
    fn met_by(self, ratio: f64) -> bool {
        match self {
            Self::AtMost(bound) => ratio <= bound,
            Self::AtLeast(bound) => ratio >= bound,
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtMost(bound) => write!(f, "≤ {bound}"),
            Self::AtLeast(bound) => write!(f, "≥ {bound}"),
        }
    }
}

/// The unit of both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum Unit {
    #[serde(rename = "us")]
    Micros,
    #[serde(rename = "bytes")]
    Bytes,
    #[serde(rename = "messages")]
    Messages,
    #[serde(rename = "hits")]
    Hits,
    #[serde(rename = "messages/s")]
    MessagesPerSecond,
    #[serde(rename = "claims/s")]
    ClaimsPerSecond,
    #[serde(rename = "windows/s")]
    WindowsPerSecond,
    #[serde(rename = "MiB")]
    MebiBytes,
    #[serde(rename = "MiB/s")]
    MebiBytesPerSecond,
    #[serde(rename = "MB/s")]
    MegaBytesPerSecond,
    #[serde(rename = "GFLOP/s")]
    GigaFlops,
}

impl Unit {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Micros => "µs",
            Self::Bytes => "bytes",
            Self::Messages => "messages",
            Self::Hits => "hits",
            Self::MessagesPerSecond => "messages/s",
            Self::ClaimsPerSecond => "claims/s",
            Self::WindowsPerSecond => "windows/s",
            Self::MebiBytes => "MiB",
            Self::MebiBytesPerSecond => "MiB/s",
            Self::MegaBytesPerSecond => "MB/s",
            Self::GigaFlops => "GFLOP/s",
        }
    }
}

/// The median, the minimum and the maximum of some rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.collect();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        let middle = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(at(middle.wrapping_sub(1)), at(middle))
        } else {
            at(middle)
        };
        Self { median, min: at(0), max: at(sorted.len().wrapping_sub(1)) }
    }
}

/// Larder compared with its peer.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Figure {
    pub(super) name: &'static str,
    /// Larder's side.
    pub(super) what: String,
    /// The peer, by name and version.
    pub(super) peer: String,
    /// The settings of the service, the same for both sides.
    pub(super) settings: String,
    pub(super) unit: Unit,
    pub(super) larder: Spread,
    pub(super) beside: Spread,
    pub(super) ratio: Spread,
    pub(super) target: Option<Target>,
    pub(super) verdict: Verdict,
}

/// The description of a figure before its measurement.
pub(super) struct Subject {
    pub(super) name: &'static str,
    pub(super) what: String,
    pub(super) peer: String,
    pub(super) settings: String,
    pub(super) unit: Unit,
    pub(super) target: Option<Target>,
}

impl Subject {
    /// Makes the figure from the rounds of Larder's side and of the peer.
    pub(super) fn figure(self, rounds: &[(f64, f64)]) -> Figure {
        let ratio = Spread::of(rounds.iter().map(|(larder, peer)| larder / peer));
        Figure {
            name: self.name,
            what: self.what,
            peer: self.peer,
            settings: self.settings,
            unit: self.unit,
            larder: Spread::of(rounds.iter().map(|(larder, _)| *larder)),
            beside: Spread::of(rounds.iter().map(|(_, peer)| *peer)),
            ratio,
            target: self.target,
            verdict: match self.target.map(|target| target.met_by(ratio.median)) {
                Some(true) => Verdict::Pass,
                Some(false) => Verdict::Short,
                None => Verdict::Information,
            },
        }
    }
}

/// The factor of additional rounds for calls of one caller to a server, because these vary by half from round
/// to round.
pub(super) const MORE: usize = 3;

/// A benchmark that returned no figures.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Skipped {
    pub(super) bench: String,
    pub(super) reason: String,
}

/// Measures both sides in turns and swaps their order in every other round. A first round warms up
/// connections, prepared statements and caches, and does not count.
pub(super) async fn in_turns<T>(
    plan: &Plan,
    larder: impl AsyncFnMut(usize) -> Outcome<T>,
    peer: impl AsyncFnMut(usize) -> Outcome<T>,
) -> Outcome<Vec<(T, T)>> {
    in_rounds(plan.rounds, larder, peer).await
}

/// Measures both sides in this number of rounds.
pub(super) async fn in_rounds<T>(
    count: usize,
    mut larder: impl AsyncFnMut(usize) -> Outcome<T>,
    mut peer: impl AsyncFnMut(usize) -> Outcome<T>,
) -> Outcome<Vec<(T, T)>> {
    let mut rounds = Vec::with_capacity(count);
    for round in 0..=count {
        let pair = if round.is_multiple_of(2) {
            let larder = larder(round).await?;
            (larder, peer(round).await?)
        } else {
            let peer = peer(round).await?;
            (larder(round).await?, peer)
        };
        if round > 0 {
            rounds.push(pair);
        }
    }
    Ok(rounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(target: Target) -> Subject {
        Subject {
            name: "append",
            what: String::new(),
            peer: String::new(),
            settings: String::new(),
            unit: Unit::Micros,
            target: Some(target),
        }
    }

    #[test]
    fn the_figure_is_the_median_of_the_rounds_ratios() {
        let rounds = [(3.0, 1.0), (1.0, 1.0), (10.0, 5.0)];
        let figure = subject(Target::AtMost(1.25)).figure(&rounds);
        assert_eq!(figure.ratio, Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(figure.larder.median, 3.0);
        assert_eq!(figure.verdict, Verdict::Short);
        assert_eq!(subject(Target::AtLeast(0.9)).figure(&rounds).verdict, Verdict::Pass);
        assert_eq!(subject(Target::AtMost(1.0)).figure(&[(1.0, 1.0), (2.0, 1.0)]).ratio.median, 1.5);
    }
}
