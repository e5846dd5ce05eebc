//! What waits for a shard's writer, and which of it makes the next batch.
//!
//! Promises: bounded; first come, first served, except that a batch holds at most one command per relation and per
//! (user, operation id). One that meets such an earlier one waits for the next batch, and so does everything that would
//! overtake it.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::{Notify, oneshot};

use crate::intent::{Answer, Intent, Unanswered};

/// How an answer finds its caller. A caller that has gone away is no error.
pub(crate) type Reply = oneshot::Sender<Result<Answer, Unanswered>>;

/// One waiting command.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) intent: Intent,
    pub(crate) reply: Reply,
    /// Nobody waits for the answer after this; the command is not sent any more.
    pub(crate) deadline: Instant,
    keys: [u64; 2],
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Waiting>,
    mode: Mode,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Mode {
    #[default]
    Open,
    /// The shard's server is away: nothing is taken in.
    Down,
    /// The process stops: nothing is taken in, what waits is still written.
    Closed,
}

/// The queue of one shard.
#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    arrived: Notify,
    capacity: usize,
    hasher: RandomState,
}

impl Queue {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { state: Mutex::default(), arrived: Notify::new(), capacity, hasher: RandomState::new() }
    }

    /// Takes a command in; its answer comes through the receiver.
    pub(crate) fn push(
        &self,
        intent: Intent,
        deadline: Instant,
    ) -> Result<oneshot::Receiver<Result<Answer, Unanswered>>, Unanswered> {
        let (reply, answer) = oneshot::channel();
        // A collision of these hashes only makes a command wait for the next batch.
        let user = intent.user_id.as_str();
        let keys = [
            self.hasher.hash_one((0_u8, user, intent.command.video_id.as_str())),
            self.hasher.hash_one((1_u8, user, intent.operation_id.as_str())),
        ];
        let mut state = self.lock();
        if state.mode != Mode::Open {
            return Err(Unanswered::Unavailable);
        }
        if state.waiting.len() >= self.capacity {
            return Err(Unanswered::Overloaded);
        }
        state.waiting.push_back(Waiting { intent, reply, deadline, keys });
        drop(state);
        self.arrived.notify_one();
        Ok(answer)
    }

    /// Waits until there is something to take; false when nothing will come any more.
    pub(crate) async fn wait(&self) -> bool {
        loop {
            let arrived = self.arrived.notified();
            {
                let state = self.lock();
                if !state.waiting.is_empty() {
                    return true;
                }
                if state.mode == Mode::Closed {
                    return false;
                }
            }
            arrived.await;
        }
    }

    /// The next batch: at most `max`, possibly empty when everybody has stopped waiting.
    pub(crate) fn take(&self, max: usize, now: Instant) -> Vec<Waiting> {
        select(&mut self.lock().waiting, max, now)
    }

    /// Commands waiting.
    pub(crate) fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    /// The server is away: whoever waits is told so, whoever comes is refused. What is in flight is not in the queue.
    pub(crate) fn go_down(&self) {
        let mut state = self.lock();
        if state.mode == Mode::Open {
            state.mode = Mode::Down;
        }
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        for command in waiting {
            let _ = command.reply.send(Err(Unanswered::Unavailable));
        }
    }

    /// The server is back.
    pub(crate) fn come_up(&self) {
        let mut state = self.lock();
        if state.mode == Mode::Down {
            state.mode = Mode::Open;
        }
    }

    /// Nothing is taken in any more; [`wait`](Self::wait) ends once the queue is empty.
    pub(crate) fn close(&self) {
        self.lock().mode = Mode::Closed;
        self.arrived.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock; a poisoned queue would still be whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the next batch off the front of `waiting` and leaves the rest in order.
fn select(waiting: &mut VecDeque<Waiting>, max: usize, now: Instant) -> Vec<Waiting> {
    let mut batch = Vec::with_capacity(waiting.len().min(max));
    let mut kept = VecDeque::new();
    let mut met: HashSet<u64, BuildHasherDefault<Hashed>> = HashSet::default();
    while batch.len() < max {
        let Some(command) = waiting.pop_front() else { break };
        if command.deadline <= now {
            continue;
        }
        // The keys of one that is kept back count too: whoever shares one must not overtake it.
        let [relation, operation] = command.keys;
        let first = met.insert(relation) & met.insert(operation);
        if first {
            batch.push(command);
        } else {
            kept.push_back(command);
        }
    }
    if !kept.is_empty() {
        kept.append(waiting);
        *waiting = kept;
    }
    batch
}

/// The keys are hashes already.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 << 8) | u64::from(*byte);
        }
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use likewise_domain::decide::Command;
    use likewise_domain::id::{OperationId, UserId, VideoId};
    use likewise_domain::relation::{Cause, LikeState};
    use proptest::prelude::*;

    use super::*;

    fn intent(user: &str, operation: &str, video: &str) -> Intent {
        Intent {
            user_id: UserId::parse(user).expect("an id"),
            operation_id: OperationId::parse(operation).expect("an id"),
            command: Command {
                video_id: VideoId::parse(video).expect("an id"),
                desired_state: LikeState::Liked,
                dated: None,
                base_version: None,
                refusal: None,
                cause: Cause::User,
            },
            client_sequence: None,
            device_hash: None,
        }
    }

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    /// Pushes `user operation video` triples and shows the batches as the operations in them.
    fn batches(max: usize, commands: &[&str]) -> Vec<String> {
        let queue = Queue::new(1000);
        let mut answers = Vec::new();
        for command in commands {
            let parts: Vec<&str> = command.split(' ').collect();
            answers.push(queue.push(intent(parts[0], parts[1], parts[2]), later()).expect("taken in"));
        }
        let mut batches = Vec::new();
        while queue.len() > 0 {
            let batch = queue.take(max, Instant::now());
            let operations: Vec<&str> = batch.iter().map(|waiting| waiting.intent.operation_id.as_str()).collect();
            batches.push(operations.join(" "));
        }
        batches
    }

    #[test]
    fn one_command_per_relation_and_per_operation_and_nothing_overtakes() {
        assert_eq!(batches(9, &["u a v", "u b w", "x c v"]), ["a b c"]);
        assert_eq!(batches(9, &["u a v", "u b v", "u c w"]), ["a c", "b"]);
        assert_eq!(batches(9, &["u a v", "u a w", "x a v"]), ["a a", "a"], "ids belong to a user");
        // The second waits for the first, the third has the second's operation id, the fourth the third's relation.
        assert_eq!(batches(9, &["u a v", "u b v", "u b w", "u d w", "u e z"]), ["a e", "b", "b", "d"]);
        assert_eq!(batches(2, &["u a v", "u b w", "u c x"]), ["a b", "c"]);
    }

    #[test]
    fn nobody_waits_for_what_is_past_its_deadline() {
        let queue = Queue::new(10);
        let now = Instant::now();
        let late = queue.push(intent("u", "a", "v"), now).expect("taken in");
        let _early = queue.push(intent("u", "b", "v"), later()).expect("taken in");
        let batch = queue.take(10, now);
        assert_eq!(batch.len(), 1);
        assert_eq!(batch[0].intent.operation_id.as_str(), "b");
        drop(late);
    }

    #[test]
    fn a_full_queue_and_a_server_that_is_away_refuse() {
        let queue = Queue::new(1);
        let mut first = queue.push(intent("u", "a", "v"), later()).expect("taken in");
        assert_eq!(queue.push(intent("u", "b", "w"), later()).expect_err("full"), Unanswered::Overloaded);
        queue.go_down();
        assert_eq!(first.try_recv().expect("told"), Err(Unanswered::Unavailable));
        assert_eq!(queue.push(intent("u", "b", "w"), later()).expect_err("down"), Unanswered::Unavailable);
        queue.come_up();
        assert!(queue.push(intent("u", "b", "w"), later()).is_ok());
        queue.close();
        queue.come_up();
        assert_eq!(queue.push(intent("u", "c", "x"), later()).expect_err("closed"), Unanswered::Unavailable);
    }

    #[tokio::test]
    async fn a_closed_queue_is_emptied_first() {
        let queue = Queue::new(10);
        let _answer = queue.push(intent("u", "a", "v"), later()).expect("taken in");
        queue.close();
        assert!(queue.wait().await);
        assert_eq!(queue.take(10, Instant::now()).len(), 1);
        assert!(!queue.wait().await);
    }

    proptest! {
        #[test]
        fn every_command_is_taken_once_and_commands_of_one_relation_in_order(
            commands in prop::collection::vec((0u8..3, 0u8..6, 0u8..3), 0..60), max in 1usize..8,
        ) {
            let queue = Queue::new(1000);
            let mut answers = Vec::new();
            for (number, (user, operation, video)) in commands.iter().enumerate() {
                let mut intent = intent(&format!("u{user}"), &format!("o{operation}"), &format!("v{video}"));
                intent.client_sequence = Some(u64::try_from(number).expect("small"));
                answers.push(queue.push(intent, later()).expect("taken in"));
            }
            let mut taken = Vec::new();
            while queue.len() > 0 {
                let batch = queue.take(max, Instant::now());
                prop_assert!(!batch.is_empty() && batch.len() <= max);
                let relations: HashSet<_> = batch.iter().map(|waiting| waiting.keys[0]).collect();
                let operations: HashSet<_> = batch.iter().map(|waiting| waiting.keys[1]).collect();
                prop_assert_eq!((relations.len(), operations.len()), (batch.len(), batch.len()));
                taken.extend(batch.into_iter().map(|waiting| (waiting.keys, waiting.intent.client_sequence)));
            }
            prop_assert_eq!(taken.len(), commands.len());
            for key in 0..2 {
                let mut last = std::collections::HashMap::new();
                for (keys, number) in &taken {
                    prop_assert!(last.insert(keys[key], *number) < Some(*number));
                }
            }
        }
    }
}
