//! A publisher, one step at a time.

use super::super::publisher::history::{Search, Step, agrees, end, lost, next_epoch, speaker};
use super::super::publisher::resume::{Row, Tail, resume};
use super::super::stream::Found;
use super::{Event, Flaw, World};

/// Rows that are read at once.
const BATCH: usize = 2;

/// What a publisher holds in memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Worker {
    Down,
    /// Publishes; `rows` follow `last`.
    Attached {
        epoch: u32,
        last: u64,
        id: Option<u8>,
        rows: Vec<Event>,
    },
    /// Has found that a repair is due.
    Due,
    /// Has asked which streams there are.
    Listed {
        known: Vec<u32>,
    },
    /// A repair of epoch `of` is due, and nobody has begun it.
    Asked {
        run: u8,
        of: u32,
        known: Vec<u32>,
    },
    /// Every stream that it knows of is sealed.
    Sealed {
        run: u8,
        of: u32,
        known: Vec<u32>,
    },
    /// Outbox and streams agree up to a number.
    Agreed {
        run: u8,
        of: u32,
        known: Vec<u32>,
        agreed: u64,
    },
    /// The repair is recorded.
    Recorded {
        run: u8,
        epoch: u32,
        agreed: u64,
    },
    /// The new stream is there.
    Created {
        run: u8,
        epoch: u32,
        agreed: u64,
    },
    /// Everything was stated again.
    Restated {
        run: u8,
        epoch: u32,
    },
    /// A person has to decide which of two databases is the shard.
    Superseded,
}

impl World {
    /// The next step of a publisher; `None` when there is none.
    pub(super) fn worked(&self, number: usize, flaw: Flaw) -> Option<Self> {
        let mut next = self.clone();
        let worker = match &self.workers[number] {
            Worker::Down => next.attach(flaw),
            Worker::Attached { epoch, last, id, rows } if rows.is_empty() => next.read_rows((*epoch, *last, *id), flaw),
            Worker::Attached { epoch, last, rows, .. } => next.publish(*epoch, *last, rows),
            Worker::Due => Worker::Listed { known: self.streams.iter().map(|stream| stream.epoch).collect() },
            Worker::Listed { known } => next.ask(known, flaw),
            Worker::Asked { run, of, known } => next.seal(*run, *of, known),
            Worker::Sealed { run, of, known } => next.agree(*run, *of, known),
            Worker::Agreed { run, of, known, agreed } => next.record(*run, *of, known, *agreed, flaw),
            Worker::Recorded { run, epoch, agreed } => next.create_next(*run, *epoch, *agreed),
            Worker::Created { run, epoch, agreed } => next.restate(*run, *epoch, *agreed, flaw),
            Worker::Restated { run, epoch } => next.serve(*run, *epoch, flaw),
            Worker::Superseded => Worker::Superseded,
        };
        next.workers[number] = worker;
        (next != *self).then_some(next)
    }

    fn attach(&mut self, flaw: Flaw) -> Worker {
        let epoch = self.facts.epoch;
        if self.facts.is_repairing {
            return Worker::Due;
        }
        if let Some(newest) = self.newest().filter(|newest| *newest > epoch) {
            if flaw != Flaw::NoRecord {
                return Worker::Due;
            }
            // Nothing says that somebody was about to state things again.
            self.facts.epoch = newest;
            self.facts.first = self.stream(newest).map_or(1, |stream| stream.first);
            return Worker::Down;
        }
        if self.stream(epoch).is_none() {
            self.create(epoch, self.facts.first);
        }
        let Some(stream) = self.stream(epoch) else { return Worker::Down };
        if stream.is_sealed {
            return Worker::Due;
        }
        let last = stream.last();
        let mut found = stream.found(last);
        let row = (last.max(1)..).map_while(|seq| Some((seq, self.facts.row(seq)?))).next();
        if let (Flaw::NoEventIds, Some((seq, row))) = (flaw, row)
            && seq == last
        {
            found = Found::Event(row.uuid());
        }
        let tail = Tail { stream: String::new(), last, found };
        let row = row.map(|(seq, row)| Row { seq, event_id: row.uuid() });
        match resume(&tail, row, self.facts.evidence) {
            Ok(resume) => {
                if let Some((_, to)) = resume.evidence_missing {
                    self.facts.evidence = to;
                }
                let id = resume.position.event_id.and_then(|_| Some(self.facts.row(last)?.id));
                Worker::Attached { epoch, last, id, rows: Vec::new() }
            }
            Err(_) => Worker::Due,
        }
    }

    /// Writes the evidence of what was acknowledged, else reads on. With nothing to read it looks whether everything is
    /// still as it was.
    fn read_rows(&mut self, (epoch, last, id): (u32, u64, Option<u8>), flaw: Flaw) -> Worker {
        let same = Worker::Attached { epoch, last, id, rows: Vec::new() };
        let here = self.facts.row(last).map(|row| row.id);
        let holds = if flaw == Flaw::NoEventIds { here.is_some() == id.is_some() } else { here == id };
        if id.is_some() && !holds {
            return Worker::Due;
        }
        if self.facts.evidence < last && self.facts.epoch == epoch {
            self.facts.evidence = last;
            return same;
        }
        let rows: Vec<Event> = (last + 1..).map_while(|seq| self.facts.row(seq)).take(BATCH).collect();
        if !rows.is_empty() {
            return Worker::Attached { epoch, last, id, rows };
        }
        let again = self.attach(flaw);
        if again == same { same } else { Worker::Down }
    }

    fn publish(&mut self, epoch: u32, last: u64, rows: &[Event]) -> Worker {
        let Some(stream) = self.stream_mut(epoch).filter(|stream| !stream.is_sealed) else { return Worker::Down };
        if stream.last() == last {
            stream.messages.extend(rows);
            let id = rows.last().map(|row| row.id);
            return Worker::Attached { epoch, last: stream.last(), id, rows: Vec::new() };
        }
        // Rejected by the chain. What was read may be older than what the database says now.
        Worker::Down
    }

    /// A repair that was begun is gone on with, unless streams tell of a later one; one that somebody else has ended
    /// meanwhile is not made again.
    fn ask(&self, known: &[u32], flaw: Flaw) -> Worker {
        let (of, is_later) = (self.facts.epoch, known.iter().any(|epoch| *epoch > self.facts.epoch));
        if self.facts.is_repairing && !is_later {
            return Worker::Recorded { run: self.run, epoch: of, agreed: self.facts.first - 1 };
        }
        if self.clone().attach(flaw) != Worker::Due {
            return Worker::Down;
        }
        let own = self.stream(of).filter(|_| known.contains(&of));
        let is_sealed = own.is_some_and(|own| own.is_sealed);
        if !self.facts.is_repairing && (is_sealed && self.holds(of) || own.is_none() && is_later) {
            return Worker::Superseded;
        }
        Worker::Asked { run: self.run, of, known: known.to_vec() }
    }

    fn seal(&mut self, run: u8, of: u32, known: &[u32]) -> Worker {
        self.streams
            .iter_mut()
            .filter(|stream| known.contains(&stream.epoch))
            .for_each(|stream| stream.is_sealed = true);
        Worker::Sealed { run, of, known: known.to_vec() }
    }

    /// Whether the outbox has the last message of a stream.
    fn holds(&self, epoch: u32) -> bool {
        let Some(stream) = self.stream(epoch) else { return false };
        let last = stream.last();
        agrees(&stream.found(last), self.facts.row(last).map(Event::uuid), last, self.facts.evidence)
    }

    fn agree(&self, run: u8, of: u32, known: &[u32]) -> Worker {
        let spans: Vec<_> = known.iter().filter_map(|epoch| self.stream(*epoch)).map(super::Sent::span).collect();
        let mut search = Search::new(end(&spans));
        let agreed = loop {
            let at = match search.step() {
                Step::Agreed(agreed) => break agreed,
                Step::Ask(at) => at,
            };
            let stream = speaker(&spans, at).and_then(|span| self.stream(span.epoch));
            let found = stream.map_or(Found::Nothing, |stream| stream.found(at));
            let row = self.facts.row(at).map(Event::uuid);
            search = search.told(at, agrees(&found, row, at, self.facts.evidence));
        };
        Worker::Agreed { run, of, known: known.to_vec(), agreed }
    }

    /// Refused by a database that was put back since: it may have lost what was agreed upon.
    fn record(&mut self, run: u8, of: u32, known: &[u32], agreed: u64, flaw: Flaw) -> Worker {
        if self.facts.epoch != of || self.is_restarted(run, flaw) {
            return Worker::Down;
        }
        let spans: Vec<_> = known.iter().filter_map(|epoch| self.stream(*epoch)).map(super::Sent::span).collect();
        let epoch = next_epoch(of, &spans);
        if flaw != Flaw::NoRecord {
            (self.facts.epoch, self.facts.first, self.facts.is_repairing) = (epoch, agreed + 1, true);
        }
        Worker::Recorded { run, epoch, agreed }
    }

    fn create_next(&mut self, run: u8, epoch: u32, agreed: u64) -> Worker {
        match self.stream(epoch) {
            None => self.create(epoch, agreed + 1),
            Some(stream) if stream.is_sealed => return Worker::Down,
            Some(_) => {}
        }
        Worker::Created { run, epoch, agreed }
    }

    fn restate(&mut self, run: u8, epoch: u32, agreed: u64, flaw: Flaw) -> Worker {
        let is_recorded = self.facts.epoch == epoch && self.facts.is_repairing;
        if !is_recorded && flaw != Flaw::NoRecord {
            return Worker::Down;
        }
        if flaw == Flaw::NoRecord {
            (self.facts.epoch, self.facts.first) = (epoch, agreed + 1);
        }
        let older: Vec<_> = self.streams.iter().filter(|stream| stream.epoch < epoch).map(super::Sent::span).collect();
        let mut named = std::collections::BTreeSet::new();
        let all: Vec<u32> = older.iter().map(|span| span.epoch).collect();
        let served = if flaw == Flaw::NoMemory { &all } else { &self.facts.served };
        for span in lost(&older, agreed, served) {
            let stream = self.stream(span.epoch);
            named.extend((span.first..=span.last).filter_map(|seq| Some(stream?.message(seq)?.object)));
        }
        for object in named {
            let id = self.id();
            self.facts.write(object, self.facts.objects[object].is_on, id);
        }
        Worker::Restated { run, epoch }
    }

    /// Whether the server was started after somebody looked.
    fn is_restarted(&self, run: u8, flaw: Flaw) -> bool {
        self.run != run && flaw != Flaw::NoServerStart
    }

    /// Refused by a database that was put back since: it may have lost what was stated again, and kept the record.
    fn serve(&mut self, run: u8, epoch: u32, flaw: Flaw) -> Worker {
        let is_recorded = self.facts.epoch == epoch && self.facts.is_repairing && !self.is_restarted(run, flaw);
        if is_recorded || flaw == Flaw::NoRecord {
            self.facts.is_repairing = false;
            self.facts.served.push(epoch);
            self.repairs += 1;
        }
        Worker::Down
    }
}
