//! Positions: the numbers that stores assign, each with the generation of the place that assigned it.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::num::NonZeroU64;
use std::str::FromStr;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::error::{Error, ErrorKind, Result};

/// The identity of a thread, a bucket or a board: a random number that the store draws when the place first
/// comes into being.
///
/// A clear, an expiry and the deletion of a board keep the generation. An erasure forgets it, and what comes
/// after the erasure has a new one. A restore brings the old generation back with the data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation(NonZeroU64);

impl Generation {
    /// The greatest generation: it has 62 bits.
    const MAX: u64 = (1 << 62) - 1;

    /// Returns the generation with a stored number. `None` for 0 or a number of more than 62 bits.
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) if number.get() <= Self::MAX => Some(Self(number)),
            _ => None,
        }
    }

    /// Draws a generation.
    #[must_use]
    pub fn draw() -> Self {
        let mut hasher = RandomState::new().build_hasher();
        // The keys of a process are random; after a fork, the clock and the process differ.
        std::time::SystemTime::now().hash(&mut hasher);
        std::process::id().hash(&mut hasher);
        let number = hasher.finish() & Self::MAX;
        Self(NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN))
    }

    /// Returns the number, for a store to keep.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl fmt::Debug for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Generation({self})")
    }
}

/// Returns the number and the generation of a text such as `12` or `12@1f4`.
fn parse<N: FromStr>(text: &str) -> Option<(N, Option<Generation>)> {
    let Some((number, generation)) = text.split_once('@') else { return Some((text.parse().ok()?, None)) };
    let generation = Generation::new(u64::from_str_radix(generation, 16).ok()?)?;
    Some((number.parse().ok()?, Some(generation)))
}

fn another_generation(operation: &'static str, field: &'static str) -> Error {
    let message = "the position is of another generation: the data was erased, lost or restored; discard the \
                   position and read from the beginning";
    Error::new(ErrorKind::Conflict, operation, message).with_field(field)
}

fn beyond(operation: &'static str, field: &'static str) -> Error {
    let message = "the position is beyond the last number: data was lost, or it is of another place; discard \
                   the position and read from the beginning";
    Error::new(ErrorKind::Conflict, operation, message).with_field(field)
}

macro_rules! position {
    ($(#[$doc:meta])* $name:ident, $inner:ty, $field:literal) => {
        $(#[$doc])*
        ///
        /// A position is a number and the [`Generation`] of the place that assigned it. Every position that a
        /// store returns names its generation. A position from [`new`](Self::new) names none, and a store
        /// compares it by its number alone.
        ///
        /// `==`, the order and the hash use the number alone, because positions of different places are not
        /// comparable. A store compares the generation, too. `Display` writes the number. The text form,
        /// which [`to_text`](Self::to_text) returns, [`FromStr`] reads and serde uses, is `number@generation`
        /// for a position that names a generation; serde writes any other position as its number.
        #[derive(Clone, Copy, Default)]
        pub struct $name {
            number: $inner,
            generation: Option<Generation>,
        }

        impl $name {
            /// Creates a position that names no generation.
            #[must_use]
            pub const fn new(number: $inner) -> Self {
                Self { number, generation: None }
            }

            /// Returns the number.
            #[must_use]
            pub const fn get(self) -> $inner {
                self.number
            }

            /// Returns the generation, if the position names one.
            #[must_use]
            pub const fn generation(self) -> Option<Generation> {
                self.generation
            }

            /// Sets the generation that the position names.
            #[must_use]
            pub fn in_generation(self, generation: impl Into<Option<Generation>>) -> Self {
                Self { number: self.number, generation: generation.into() }
            }

            /// Returns the text form, for a program that stores the position or passes it on.
            #[must_use]
            pub fn to_text(self) -> String {
                match self.generation {
                    Some(generation) => format!("{}@{generation}", self.number),
                    None => self.number.to_string(),
                }
            }

            /// Returns `true` if the position may be one of a place of this generation.
            #[must_use]
            pub fn is_of(self, generation: Option<Generation>) -> bool {
                self.generation.is_none() || self.generation == generation
            }

            /// Returns `true` if the position names a stored one: the number is equal, and the generation too
            /// if the position names one.
            #[must_use]
            pub fn names(self, stored: Self) -> bool {
                self.number == stored.number && self.is_of(stored.generation)
            }

            /// Returns `true` if a place whose last position is `last` can have assigned this position.
            #[must_use]
            pub fn is_within(self, last: Self) -> bool {
                self.is_of(last.generation) && self.number <= last.number
            }

            /// Returns `true` if a place whose last position is `last` may still assign this position: the
            /// place does not exist yet or has the same generation.
            #[must_use]
            pub fn may_follow(self, last: Self) -> bool {
                last.generation.is_none() || self.is_of(last.generation)
            }

            /// Names the generation of a place whose last position is `last`, for a stream that begins at
            /// this position. A position without a generation at the start of the place stays as it is.
            #[must_use]
            pub fn anchored(self, last: Self) -> Self {
                if self.generation.is_none() && self > Self::default() {
                    self.in_generation(last.generation)
                } else {
                    self
                }
            }

            /// Refuses a position of another generation than that of the place's `last` position.
            ///
            /// # Errors
            /// `Conflict` with the field.
            pub fn check_generation(
                self,
                operation: &'static str,
                field: &'static str,
                last: Self,
            ) -> Result<()> {
                if self.is_of(last.generation) { Ok(()) } else { Err(another_generation(operation, field)) }
            }

            /// Refuses a position from which a reader cannot continue: one of another generation than the
            /// place's, or one beyond the place's `last` position. The last position of a place that does not
            /// exist is 0, without a generation.
            ///
            /// # Errors
            /// `Conflict` with the field.
            pub fn check_resume(
                self,
                operation: &'static str,
                field: &'static str,
                last: Self,
            ) -> Result<()> {
                self.check_generation(operation, field, last)?;
                if self.number > last.number { Err(beyond(operation, field)) } else { Ok(()) }
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.number == other.number
            }
        }

        impl Eq for $name {}

        impl Hash for $name {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.number.hash(state);
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Ord for $name {
            fn cmp(&self, other: &Self) -> Ordering {
                self.number.cmp(&other.number)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.number.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.number)
            }
        }

        impl FromStr for $name {
            type Err = Error;
            fn from_str(text: &str) -> Result<Self> {
                let parsed = parse(text).ok_or_else(|| {
                    Error::invalid(
                        "position.parse",
                        $field,
                        "is not a position; pass a number, or `number@generation` as the store returned it",
                    )
                });
                parsed.map(|(number, generation)| Self { number, generation })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if !serializer.is_human_readable() {
                    (self.number, self.generation.map_or(0, Generation::get)).serialize(serializer)
                } else if self.generation.is_some() {
                    serializer.serialize_str(&self.to_text())
                } else {
                    self.number.serialize(serializer)
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Form;
                impl Visitor<'_> for Form {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("a number or the text `number@generation`")
                    }
                    fn visit_i64<E: de::Error>(self, number: i64) -> Result<$name, E> {
                        <$inner>::try_from(number).map($name::new).map_err(E::custom)
                    }
                    fn visit_u64<E: de::Error>(self, number: u64) -> Result<$name, E> {
                        <$inner>::try_from(number).map($name::new).map_err(E::custom)
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                if deserializer.is_human_readable() {
                    return deserializer.deserialize_any(Form);
                }
                let (number, generation) = <($inner, u64)>::deserialize(deserializer)?;
                Ok(Self { number, generation: Generation::new(generation) })
            }
        }
    };
}

position!(
    /// The sequence number of a message or an event in its thread, assigned by the store.
    ///
    /// The numbers of appended messages and events count up from 1 and never restart. The messages of a
    /// replacement take numbers that end at the last number they replace. If a replacement is longer than the
    /// part it replaces, its numbers reach 0 and below. No other message or event has a number below 1.
    Seq, i64, "seq"
);
position!(
    /// The version of a record, assigned by the store. It grows with each write and never restarts.
    Revision, u64, "revision"
);
position!(
    /// The number of a claim. A later claim of the same board has a greater number. The store can therefore
    /// refuse a worker whose lease was taken over, and so can a thread that the worker writes; see
    /// [`append_many`](crate::HistoryProvider::append_many).
    FencingToken, u64, "token"
);
position!(
    /// The position of a task on its board. Tasks added later have a greater position.
    TaskPosition, u64, "position"
);

impl Revision {
    /// Returns the revision that a write at this `Seq` gives a message of a thread.
    #[must_use]
    pub fn at(seq: Seq) -> Self {
        Self { number: u64::try_from(seq.number).unwrap_or(0), generation: seq.generation }
    }
}

impl Seq {
    /// The `Seq` before every appended message. Reading from the start begins here, unless a replacement has
    /// numbers below it.
    pub const ZERO: Self = Self::new(0);
    /// The `Seq` before every possible message and event.
    pub const MIN: Self = Self::new(i64::MIN);
    /// The `Seq` after every possible message and event. It is a bound and never a position to continue from:
    /// no message follows it in any thread.
    pub const MAX: Self = Self::new(i64::MAX);

    /// Returns `true` if this is [`Seq::MAX`].
    #[must_use]
    pub const fn is_end(self) -> bool {
        self.number == i64::MAX && self.generation.is_none()
    }
}

impl Revision {
    /// The revision before every write. A watch from the start begins here.
    pub const ZERO: Self = Self::new(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_drawn_within_62_bits_and_differs_from_the_next() {
        let drawn: Vec<Generation> = (0..1_000).map(|_| Generation::draw()).collect();
        assert!(drawn.iter().all(|generation| Generation::new(generation.get()) == Some(*generation)));
        assert!(drawn.windows(2).all(|pair| pair[0] != pair[1]));
        assert_eq!((Generation::new(0), Generation::new(1 << 62)), (None, None));
    }

    #[test]
    fn the_number_alone_decides_equality_and_order() {
        let (one, two) = (Generation::new(1), Generation::new(2));
        let position = |number, generation| Seq::new(number).in_generation(generation);
        assert_eq!(position(3, one), position(3, two));
        assert!(position(3, two) < position(4, one) && position(3, one) == Seq::new(3));
        assert!(Seq::new(3).names(position(3, one)) && position(3, one).names(position(3, one)));
        assert!(!position(3, two).names(position(3, one)) && !position(2, one).names(position(3, one)));
        assert_eq!(position(3, one).to_string(), "3");
    }

    #[test]
    fn both_text_forms_are_read_and_json_keeps_the_generation() {
        let named = Revision::new(12).in_generation(Generation::new(0x1f4));
        assert_eq!((named.to_text().as_str(), Revision::new(12).to_text().as_str()), ("12@1f4", "12"));
        for (position, json) in [(named, "\"12@1f4\""), (Revision::new(12), "12")] {
            assert_eq!(serde_json::to_string(&position).unwrap(), json);
            let read: Revision = serde_json::from_str(json).unwrap();
            assert_eq!((read, read.generation()), (position, position.generation()));
            let read: Revision = position.to_text().parse().unwrap();
            assert_eq!((read, read.generation()), (position, position.generation()));
        }
        assert_eq!(serde_json::from_str::<Seq>("-7").unwrap(), Seq::new(-7));
        for wrong in ["", "@", "1@", "@1", "1@0", "1@x", "x", "1@4000000000000000", "-1"] {
            assert_eq!(wrong.parse::<Revision>().unwrap_err().field(), Some("revision"), "{wrong}");
        }
        assert!(serde_json::from_str::<Revision>("-1").is_err());
    }

    #[test]
    fn a_reader_resumes_within_its_generation_and_not_beyond_the_last_number() {
        let (one, two) = (Generation::new(1), Generation::new(2));
        let at = |number: i64, generation| Seq::new(number).in_generation(generation);
        let check =
            |position: Seq, generation, last| position.check_resume("read", "after", at(last, generation));
        for (position, generation, last, fits) in [
            (Seq::ZERO, None, 0, true),
            (Seq::new(1), None, 0, false),
            (Seq::new(3), one, 3, true),
            (Seq::new(4), one, 3, false),
            (at(3, one), one, 3, true),
            (at(4, one), one, 3, false),
            (at(3, two), one, 9, false),
            (at(3, one), None, 0, false),
            (at(-2, two), one, 3, false),
        ] {
            let checked = check(position, generation, last);
            assert_eq!(checked.is_ok(), fits, "{} of {last}", position.to_text());
            let kind = checked.err().map(|error| (error.kind(), error.field().map(str::to_owned)));
            let conflict = Some((ErrorKind::Conflict, Some("after".to_owned())));
            assert_eq!(kind, if fits { None } else { conflict });
        }
    }
}
