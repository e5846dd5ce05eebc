//! The consumer, one step at a time.

use uuid::Uuid;

use super::super::consumer::compare::{Ends, Next, compare};
use super::super::stream::Found;
use super::{Flaw, Held, OBJECTS, World};

/// What a consumer keeps in its own database.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Reader {
    pub(super) epoch: u32,
    pub(super) next: u64,
    pub(super) last_id: Option<u8>,
    pub(super) held: [Held; OBJECTS],
}

impl World {
    /// The next step of the consumer; `None` when there is none.
    pub(super) fn read(&self, flaw: Flaw) -> Option<Self> {
        let mut next = self.clone();
        let stream = self.stream(self.reader.epoch)?;
        let applied = self.reader.next - 1;
        let found = if applied == 0 { Found::Nothing } else { stream.found(applied) };
        let ends = Ends {
            stream: String::new(),
            first: stream.first,
            last: stream.last(),
            applied: found,
            sealed: stream.is_sealed,
        };
        let last_id = self.reader.last_id.map(|id| Uuid::from_u128(id.into()));
        let mut told = compare(&ends, self.reader.next, last_id).ok()?;
        let successor = self.streams.iter().find(|other| other.epoch > self.reader.epoch);
        if flaw == Flaw::NoDrain && stream.is_sealed && successor.is_some() {
            told = Next::NextEpoch;
        }
        match told {
            Next::Here => {
                let message = stream.message(self.reader.next)?;
                let held = &mut next.reader.held[message.object];
                if held.version < message.held.version {
                    *held = message.held;
                }
                (next.reader.next, next.reader.last_id) = (self.reader.next + 1, Some(message.id));
            }
            Next::NextEpoch => {
                let successor = successor?;
                // What both epochs have in common was applied: a sealed stream reaches at least that far.
                if flaw != Flaw::NoDrain && self.reader.next < successor.first {
                    return None;
                }
                (next.reader.epoch, next.reader.next, next.reader.last_id) = (successor.epoch, successor.first, None);
            }
        }
        Some(next)
    }
}
