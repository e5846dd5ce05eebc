//! The commands that are sent: many users on many videos, 70 % new likes, and of earlier ones 10 % sent twice, 10 % liked
//! again and 10 % taken back. Every relation has one fate, so the answer to each command is known before it is sent.

use std::collections::VecDeque;
use std::ops::Range;

use uuid::Uuid;

use super::door::Sent;

/// Commands in one cycle of the mix, and new likes among them.
const CYCLE: usize = 10;
const NEW: usize = 7;
/// Cycles from a like to the command that follows it up: more commands than are ever in flight or in one batch.
const LAG: usize = 410;

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The first like of a relation.
    New,
    /// That like once more, with the same id: the first verdict is told again.
    Duplicate,
    /// A like of a liked relation with an id of its own.
    NoChange,
    /// A like taken back.
    Unlike,
}

/// One command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    /// What is sent.
    pub(crate) kind: Kind,
    /// Number of the user.
    pub(crate) user: usize,
    /// Number of the video.
    pub(crate) video: usize,
    /// Its operation id.
    pub(crate) operation: Uuid,
}

/// Draws the mix. Commands have to be sent in the order drawn, all of them.
#[derive(Debug)]
pub(crate) struct Mix {
    users: usize,
    videos: usize,
    drawn: usize,
    relations: usize,
    sent_twice: VecDeque<Uuid>,
}

impl Mix {
    /// Relations never repeat before `users * videos` of them.
    pub(crate) fn new(users: usize, videos: usize) -> Self {
        Self { users, videos, drawn: 0, relations: 0, sent_twice: VecDeque::new() }
    }

    /// The next commands. The first few thousand are new likes only: there is nothing to follow up yet.
    pub(crate) fn draw(&mut self, count: usize) -> Vec<Planned> {
        (0..count).map(|_| self.next()).collect()
    }

    fn next(&mut self) -> Planned {
        let (cycle, slot) = (self.drawn / CYCLE, self.drawn % CYCLE);
        if let (Some(early), Some(fate)) = (cycle.checked_sub(LAG), slot.checked_sub(NEW)) {
            self.drawn += 1;
            return self.follow_up(early * NEW + fate, fate);
        }
        self.drawn += 1;
        if slot + 1 == NEW && cycle < LAG {
            self.drawn += CYCLE - NEW;
        }
        let relation = self.relations;
        self.relations += 1;
        let planned = self.of(relation, Kind::New, Uuid::now_v7());
        if relation.is_multiple_of(NEW) {
            self.sent_twice.push_back(planned.operation);
        }
        planned
    }

    fn follow_up(&mut self, relation: usize, fate: usize) -> Planned {
        let kind = [Kind::Duplicate, Kind::NoChange, Kind::Unlike][fate];
        let first = if kind == Kind::Duplicate { self.sent_twice.pop_front() } else { None };
        self.of(relation, kind, first.unwrap_or_else(Uuid::now_v7))
    }

    fn of(&self, relation: usize, kind: Kind, operation: Uuid) -> Planned {
        let (lap, user) = (relation / self.users, relation % self.users);
        Planned { kind, user, video: (lap + user * 31) % self.videos, operation }
    }
}

/// Clients that were offline: batches of 100 commands of one user in the proportions of the mix.
#[derive(Debug)]
pub(crate) struct Offline {
    users: Range<usize>,
    videos: usize,
    drawn: usize,
}

impl Offline {
    /// Relations never repeat before each user has liked every video.
    pub(crate) fn new(users: Range<usize>, videos: usize) -> Self {
        Self { users, videos, drawn: 0 }
    }

    /// The next batches.
    pub(crate) fn draw(&mut self, batches: usize) -> Vec<Vec<Sent>> {
        (0..batches.max(1)).map(|_| self.next()).collect()
    }

    fn next(&mut self) -> Vec<Sent> {
        let (lap, user) = (self.drawn / self.users.len(), self.users.start + self.drawn % self.users.len());
        self.drawn += 1;
        let planned = |place: usize, kind, operation| {
            let video = (lap * 70 + place + user * 31) % self.videos;
            Sent::of(&Planned { kind, user, video, operation })
        };
        let first: Vec<Uuid> = (0..70).map(|_| Uuid::now_v7()).collect();
        let news = first.iter().enumerate().map(|(place, operation)| planned(place, Kind::New, *operation));
        let repeats =
            first.iter().enumerate().take(10).map(|(place, operation)| planned(place, Kind::Duplicate, *operation));
        let others = (10..30).map(|place| {
            let kind = if place < 20 { Kind::NoChange } else { Kind::Unlike };
            planned(place, kind, Uuid::now_v7())
        });
        news.chain(repeats).chain(others).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_mix_is_what_it_says_and_follows_up_what_was_sent() {
        let mut mix = Mix::new(100, 1_000);
        let mut relations: BTreeMap<(usize, usize), Vec<Planned>> = BTreeMap::new();
        let mut kinds = [0; 4];
        let warm_up = mix.draw(LAG * NEW);
        assert!(warm_up.iter().all(|planned| planned.kind == Kind::New));
        let drawn = mix.draw(10_000);
        for planned in warm_up.iter().chain(&drawn) {
            let sent = relations.entry((planned.user, planned.video)).or_default();
            let is_first = sent.is_empty();
            assert_eq!(planned.kind == Kind::New, is_first, "{planned:?}");
            if planned.kind == Kind::Duplicate {
                assert_eq!(sent[0].operation, planned.operation);
            }
            sent.push(*planned);
        }
        drawn.iter().for_each(|planned| kinds[planned.kind as usize] += 1);
        assert_eq!(kinds, [7_000, 1_000, 1_000, 1_000]);
    }
}
