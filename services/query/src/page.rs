//! What a batch asks for, without repeats, and back in the order of the request.

use std::collections::HashSet;

use likewise_domain::id::VideoId;

/// The ids of a request and the same ids without repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// As asked, repeats kept.
    pub asked: Vec<VideoId>,
    /// Each once, in the order of its first place.
    pub distinct: Vec<VideoId>,
}

impl Batch {
    /// Of these ids.
    #[must_use]
    pub fn new(asked: Vec<VideoId>) -> Self {
        let mut seen = HashSet::with_capacity(asked.len());
        let distinct = asked.iter().filter(|id| seen.insert(*id)).cloned().collect();
        Self { asked, distinct }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_asked_for_once_and_kept_in_the_answer() {
        let ids = |text: &str| text.split(' ').map(|id| VideoId::parse(id).expect("an id")).collect::<Vec<_>>();
        let batch = Batch::new(ids("b a b c a"));
        assert_eq!((batch.asked, batch.distinct), (ids("b a b c a"), ids("b a c")));
    }
}
