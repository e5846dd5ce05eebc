//! A model of lost tails: one shard, its streams, two publishers and one consumer, with a backup that may be put back and a
//! crash between any two steps. What they decide is decided by the code that decides it in earnest; the stores are lists.
//!
//! Explored to the end: whatever happens, once nothing is left to do everybody holds what the facts say. With a part of the
//! protocol taken out the model finds a history in which they do not.
//!
//! Not in the model: holes in streams (what the facts still have is read from them, what both have lost nobody can tell),
//! and an outbox whose beginning was dropped.

mod consumer;
mod publisher;

use std::fmt;

use stateright::{Checker as _, HasDiscoveries, Model, Property};
use uuid::Uuid;

use self::consumer::Reader;
use self::publisher::Worker;
use super::publisher::history::Span;
use super::stream::Found;

/// Objects of the shard: one that was lost, and one that was not.
const OBJECTS: usize = 2;
/// Versions of an epoch are above all of the epochs before.
const EPOCH_SHIFT: u32 = 8;

/// What is taken out of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// Numbers are compared, and not the events that stand there.
    NoEventIds,
    /// A sealed stream is left as soon as the next epoch's stream is there.
    NoDrain,
    /// Epoch and number of a repair are not written before it begins: a publisher that starts anew takes the newest stream.
    NoRecord,
    /// A step of a repair is not refused by a database that was put back after the step before.
    NoServerStart,
    /// Only what stands after the last number agreed upon is stated again, though the repair before is forgotten.
    NoMemory,
}

/// What everybody may hold of an object: a higher version wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Held {
    version: u16,
    is_on: bool,
}

/// A row of the outbox, and the message that is made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Event {
    id: u8,
    object: usize,
    held: Held,
}

impl Event {
    fn uuid(self) -> Uuid {
        Uuid::from_u128(self.id.into())
    }
}

/// The database of the shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Facts {
    objects: [Held; OBJECTS],
    /// Row `n` has the number `n + 1`.
    outbox: Vec<Event>,
    epoch: u32,
    /// First number of the epoch's stream.
    first: u64,
    is_repairing: bool,
    /// Epochs that it remembers to have opened.
    served: Vec<u32>,
    evidence: u64,
}

impl Facts {
    fn last(&self) -> u64 {
        self.outbox.len() as u64
    }

    fn row(&self, seq: u64) -> Option<Event> {
        self.outbox.get(usize::try_from(seq.checked_sub(1)?).ok()?).copied()
    }

    fn effective(&self, object: usize) -> u16 {
        let floor = u16::try_from(self.epoch).unwrap_or(u16::MAX) << EPOCH_SHIFT;
        self.objects[object].version.max(floor)
    }

    /// A new version of an object, and its row.
    fn write(&mut self, object: usize, is_on: bool, id: u8) {
        let held = Held { version: self.effective(object) + 1, is_on };
        self.objects[object] = held;
        self.outbox.push(Event { id, object, held });
    }
}

/// A stream on the broker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Sent {
    epoch: u32,
    first: u64,
    messages: Vec<Event>,
    is_sealed: bool,
}

impl Sent {
    fn last(&self) -> u64 {
        self.first + self.messages.len() as u64 - 1
    }

    fn span(&self) -> Span {
        Span { epoch: self.epoch, first: self.first, last: self.last() }
    }

    fn message(&self, seq: u64) -> Option<Event> {
        self.messages.get(usize::try_from(seq.checked_sub(self.first)?).ok()?).copied()
    }

    fn found(&self, seq: u64) -> Found {
        self.message(seq).map_or(Found::Nothing, |message| Found::Event(message.uuid()))
    }
}

/// How often what may happen still may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Luck {
    commits: u8,
    backups: u8,
    restores: u8,
    crashes: u8,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    facts: Facts,
    backups: Vec<Facts>,
    /// Grows with every start of the database's server.
    run: u8,
    /// By epoch.
    streams: Vec<Sent>,
    workers: Vec<Worker>,
    reader: Reader,
    /// Ids are never given twice, whatever is restored.
    next_id: u8,
    luck: Luck,
    repairs: u8,
}

impl World {
    fn stream(&self, epoch: u32) -> Option<&Sent> {
        self.streams.iter().find(|stream| stream.epoch == epoch)
    }

    fn stream_mut(&mut self, epoch: u32) -> Option<&mut Sent> {
        self.streams.iter_mut().find(|stream| stream.epoch == epoch)
    }

    fn newest(&self) -> Option<u32> {
        self.streams.last().map(|stream| stream.epoch)
    }

    fn create(&mut self, epoch: u32, first: u64) {
        self.streams.push(Sent { epoch, first, messages: Vec::new(), is_sealed: false });
        self.streams.sort_by_key(|stream| stream.epoch);
    }

    fn id(&mut self) -> u8 {
        self.next_id += 1;
        self.next_id
    }

    /// Nobody can do anything any more, unless something happens to them.
    fn is_quiet(&self, flaw: Flaw) -> bool {
        let workers = (0..self.workers.len()).all(|number| self.worked(number, flaw).is_none());
        workers && self.read(flaw).is_none()
    }

    /// Facts, outbox, streams and the consumer say the same.
    fn agrees(&self) -> bool {
        let Some(newest) = self.streams.last() else { return self.facts.outbox.is_empty() };
        let published = newest.last() == self.facts.last() && newest.epoch == self.facts.epoch && !newest.is_sealed;
        published && !self.facts.is_repairing && self.reader.held == self.facts.objects
    }
}

/// What may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Act {
    Commit(usize),
    Backup,
    Restore(usize),
    Crash(usize),
    Work(usize),
    Read,
}

/// The protocol, or what a flaw makes of it.
#[derive(Clone, Copy, Debug)]
struct Lane {
    flaw: Flaw,
    publishers: usize,
    /// Whether a backup may be put back that is older than another one; what follows may be up to a person.
    any_backup: bool,
    luck: Luck,
}

impl Model for Lane {
    type State = World;
    type Action = Act;

    fn init_states(&self) -> Vec<World> {
        let facts = Facts { first: 1, ..Facts::default() };
        vec![World {
            facts,
            backups: Vec::new(),
            run: 0,
            streams: Vec::new(),
            workers: vec![Worker::Down; self.publishers],
            reader: Reader { epoch: 0, next: 1, last_id: None, held: Default::default() },
            next_id: 0,
            luck: self.luck,
            repairs: 0,
        }]
    }

    fn actions(&self, _: &World, acts: &mut Vec<Act>) {
        acts.extend((0..OBJECTS).map(Act::Commit));
        acts.extend([Act::Backup, Act::Read]);
        acts.extend((0..self.luck.backups.into()).map(Act::Restore));
        acts.extend((0..self.publishers).flat_map(|number| [Act::Work(number), Act::Crash(number)]));
    }

    fn next_state(&self, world: &World, act: Act) -> Option<World> {
        let mut next = world.clone();
        match act {
            Act::Commit(object) => {
                // Writers wait while the shard is repaired. They may not know yet that something was lost.
                next.luck.commits = world.luck.commits.checked_sub(1).filter(|_| !world.facts.is_repairing)?;
                let id = next.id();
                next.facts.write(object, !world.facts.objects[object].is_on, id);
            }
            Act::Backup => {
                next.luck.backups = world.luck.backups.checked_sub(1)?;
                next.backups.push(world.facts.clone());
            }
            Act::Restore(backup) => {
                next.luck.restores = world.luck.restores.checked_sub(1)?;
                next.run += 1;
                next.facts =
                    world.backups.get(backup).filter(|_| self.any_backup || backup + 1 == world.backups.len())?.clone();
            }
            Act::Crash(number) => {
                next.luck.crashes = world.luck.crashes.checked_sub(1)?;
                next.workers[number] = Worker::Down;
            }
            Act::Work(number) => return world.worked(number, self.flaw),
            Act::Read => return world.read(self.flaw),
        }
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("everybody agrees once nothing is left to do", |lane: &Self, world: &World| {
                let is_for_a_person = lane.any_backup && world.workers.contains(&Worker::Superseded);
                !world.is_quiet(lane.flaw) || world.agrees() || is_for_a_person
            }),
            Property::sometimes("every repair is made that may be due", |lane: &Self, world: &World| {
                world.repairs == lane.luck.restores
            }),
        ]
    }
}

const AGREE: &str = "everybody agrees once nothing is left to do";

/// Two publishers at once, one of which may be in the middle of anything when the other one goes on.
const RIVALS: Lane = Lane {
    flaw: Flaw::None,
    publishers: 2,
    any_backup: false,
    luck: Luck { commits: 3, backups: 1, restores: 1, crashes: 1 },
};
/// A backup of any moment, also of one in the middle of a repair, is put back twice.
const AGAIN: Lane = Lane {
    flaw: Flaw::None,
    publishers: 1,
    any_backup: false,
    luck: Luck { commits: 3, backups: 2, restores: 2, crashes: 1 },
};

/// A history in which they do not agree, if there is one.
fn explore(lane: Lane) -> Option<String> {
    let checker = lane.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    eprintln!("{lane:?}: {} states, {} deep", checker.unique_state_count(), checker.max_depth());
    let Some(path) = checker.discovery(AGREE) else {
        checker.assert_properties();
        return None;
    };
    let told = path.into_vec().into_iter().map(|(world, act)| format!("{world}\n-> {act:?}\n"));
    Some(told.collect())
}

impl fmt::Display for World {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = |events: &[Event]| {
            let each = events.iter().map(|event| format!("{}:{}v{}", event.id, event.object, event.held.version));
            each.collect::<Vec<_>>().join(" ")
        };
        let Facts { epoch, first, is_repairing, evidence, outbox, .. } = &self.facts;
        write!(out, "facts E{epoch} from {first} repairing {is_repairing} evidence {evidence} [{}]", told(outbox))?;
        for stream in &self.streams {
            let sealed = if stream.is_sealed { " sealed" } else { "" };
            write!(out, "; E{} from {}{sealed} [{}]", stream.epoch, stream.first, told(&stream.messages))?;
        }
        write!(out, "; {:?}; {:?}", self.workers, self.reader)
    }
}

fn none(history: Option<String>) {
    assert!(history.is_none(), "they do not agree after\n{}", history.unwrap_or_default());
}

#[test]
fn inv_25_case_45_nothing_diverges_with_two_publishers_at_once() {
    none(explore(RIVALS));
}

#[test]
fn inv_25_case_45_nothing_diverges_when_a_backup_is_put_back_twice() {
    none(explore(Lane { luck: Luck { crashes: 0, ..AGAIN.luck }, ..AGAIN }));
}

#[test]
fn inv_25_case_45_nothing_diverges_silently_when_backups_are_put_back_in_any_order() {
    none(explore(Lane { any_backup: true, luck: Luck { commits: 2, ..AGAIN.luck }, ..AGAIN }));
}

#[test]
fn inv_25_without_event_ids_the_model_finds_a_divergence() {
    assert!(explore(Lane { flaw: Flaw::NoEventIds, ..AGAIN }).is_some());
}

#[test]
fn inv_25_without_the_drain_the_model_finds_a_divergence() {
    assert!(explore(Lane { flaw: Flaw::NoDrain, ..AGAIN }).is_some());
}

#[test]
fn inv_25_without_the_record_the_model_finds_a_divergence() {
    assert!(explore(Lane { flaw: Flaw::NoRecord, ..AGAIN }).is_some());
}

#[test]
fn inv_25_without_a_look_at_the_server_the_model_finds_a_divergence() {
    assert!(explore(Lane { flaw: Flaw::NoServerStart, ..AGAIN }).is_some());
}

#[test]
fn inv_25_without_a_thought_of_forgotten_repairs_the_model_finds_a_divergence() {
    assert!(explore(Lane { flaw: Flaw::NoMemory, luck: Luck { crashes: 0, ..AGAIN.luck }, ..AGAIN }).is_some());
}
