//! A cache of model replies, so that no question is paid for twice.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use larder_kernel::{Thread, check};
use sha2::{Digest, Sha256};

/// The number of replies in one generation of the cache. The cache keeps the current and the previous
/// generation.
const ANSWERS_MAX: usize = 2_048;

/// The digest of a question.
pub(crate) type Question = [u8; 32];

/// The newest replies of a model, by question.
///
/// A reply is lost if the turn is cancelled, a later step fails or the store rejects the summary. The cache
/// then serves the same question without a second model call.
#[derive(Default)]
pub(crate) struct Answers(Mutex<[HashMap<Question, String>; 2]>);

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers").finish_non_exhaustive()
    }
}

impl Answers {
    pub(crate) fn key(thread: &Thread, instructions: &str, question: &str) -> Question {
        let mut digest = Sha256::new();
        for part in [thread.agent.as_str(), thread.session.as_str(), instructions, question] {
            digest.update(check::size(part.len()).to_be_bytes());
            digest.update(part);
        }
        digest.finalize().into()
    }

    pub(crate) fn find(&self, key: &Question) -> Option<String> {
        let generations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        generations.iter().find_map(|answers| answers.get(key)).cloned()
    }

    pub(crate) fn put(&self, key: Question, answer: String) {
        let mut generations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if generations[0].len() >= ANSWERS_MAX {
            generations[1] = std::mem::take(&mut generations[0]);
        }
        generations[0].insert(key, answer);
    }
}
