//! Likes of many users, each relation with a queue of one: for services that hold the taps of their users.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use likewise_domain::relation::LikeState;
use likewise_proto::convert::parse_like_state;
use likewise_proto::query::v1::MyLike;
use tokio::sync::{Notify, Semaphore};
use tonic::Status;

use crate::client::{Error, LikeClient};
use crate::session::{Known, LikeSession, Next};

/// Pause of a relation whose command found no verdict within the client's deadline.
const UNDECIDED: Duration = Duration::from_millis(500);
/// Rounds of a command without a verdict; then it waits for the next tap, or for [`Likes::resume`].
const ROUNDS_MAX: u32 = 20;

type Key = (String, String);

struct Entry {
    session: LikeSession,
    token: String,
    is_driven: bool,
    changed: Arc<Notify>,
}

/// No room for another relation: all that are remembered are on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many likes are on their way")]
pub struct Full;

/// What to show of one video.
#[derive(Debug, Clone, PartialEq)]
pub struct Shown {
    /// The video.
    pub video_id: String,
    /// The heart, with what the user has just tapped.
    pub state: LikeState,
    /// The number, with it; absent where the caller may see none.
    pub count: Option<u64>,
    /// Why the last tap was refused.
    pub refusal: Option<String>,
}

/// See the module. Clones share everything.
#[derive(Clone)]
pub struct Likes {
    client: LikeClient,
    entries: Arc<Mutex<HashMap<Key, Entry>>>,
    relations_max: usize,
    commands: Arc<Semaphore>,
}

impl Likes {
    /// Remembers at most so many relations, and has at most so many commands in flight.
    #[must_use]
    pub fn new(client: LikeClient, relations_max: usize, commands_max: usize) -> Self {
        let commands = Arc::new(Semaphore::new(commands_max));
        Self { client, entries: Arc::default(), relations_max, commands }
    }

    /// The user of `token` wants this now. Returns at once; what becomes of it shows in [`view`](Self::view).
    ///
    /// # Errors
    /// [`Full`].
    pub fn tap(&self, user: &str, token: &str, video: &str, state: LikeState) -> Result<(), Full> {
        let key = (user.to_owned(), video.to_owned());
        let mut entries = self.lock();
        if !entries.contains_key(&key) {
            self.make_room(&mut entries)?;
        }
        let entry = entries.entry(key.clone()).or_insert_with(|| Entry {
            session: LikeSession::new(None),
            token: String::new(),
            is_driven: false,
            changed: Arc::default(),
        });
        token.clone_into(&mut entry.token);
        entry.session.tap(state);
        self.drive(&key, entry);
        Ok(())
    }

    /// Goes on with what was given up for now.
    pub fn resume(&self) {
        for (key, entry) in self.lock().iter_mut() {
            if !entry.session.is_settled() {
                self.drive(key, entry);
            }
        }
    }

    /// Waits until nothing of the relation is on its way.
    pub async fn settled(&self, user: &str, video: &str) {
        let key = (user.to_owned(), video.to_owned());
        loop {
            let changed = match self.lock().get(&key) {
                Some(entry) if entry.is_driven || !entry.session.is_settled() => Arc::clone(&entry.changed),
                _ => return,
            };
            let next = changed.notified();
            // It may have settled before we listened.
            if self.lock().get(&key).is_none_or(|entry| !entry.is_driven && entry.session.is_settled()) {
                return;
            }
            let _ = tokio::time::timeout(UNDECIDED, next).await;
        }
    }

    /// Hearts and counts of videos as this user should see them: never below what was confirmed here, with what is on its way.
    ///
    /// # Errors
    /// The status of the read.
    pub async fn view(&self, user: &str, token: &str, videos: &[&str]) -> Result<Vec<Shown>, Box<Status>> {
        let (mut least, mut position) = (HashMap::new(), None);
        {
            let entries = self.lock();
            for video in videos {
                let Some(entry) = entries.get(&(user.to_owned(), (*video).to_owned())) else { continue };
                least.insert((*video).to_owned(), entry.session.min_version());
                // One question has one position; the others are asked for by the next.
                position = position.or_else(|| entry.session.position().map(str::to_owned));
            }
        }
        let ids = videos.iter().map(|video| (*video).to_owned()).collect();
        let read = self.client.batch_get_likes(token, ids, least, position.clone()).await?;
        let mut entries = self.lock();
        Ok(read.into_iter().map(|like| shown(&mut entries, user, like, position.as_deref())).collect())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make_room(&self, entries: &mut HashMap<Key, Entry>) -> Result<(), Full> {
        if entries.len() >= self.relations_max {
            entries.retain(|_, entry| {
                entry.is_driven || !entry.session.is_settled() || entry.session.position().is_some()
            });
        }
        if entries.len() >= self.relations_max {
            entries.retain(|_, entry| entry.is_driven || !entry.session.is_settled());
        }
        if entries.len() < self.relations_max { Ok(()) } else { Err(Full) }
    }

    fn drive(&self, key: &Key, entry: &mut Entry) {
        if !entry.is_driven {
            entry.is_driven = true;
            tokio::spawn(self.clone().run(key.clone()));
        }
    }

    /// Sends what the session wants until it is settled.
    async fn run(self, key: Key) {
        let mut rounds = 0;
        loop {
            let (next, token) = {
                let mut entries = self.lock();
                let Some(entry) = entries.get_mut(&key) else { return };
                let next = entry.session.next(|| self.client.draw());
                if matches!(next, Next::Settled | Next::Waiting) || rounds >= ROUNDS_MAX {
                    if let Next::Send(command) = &next {
                        entry.session.lost(&command.operation_id);
                    }
                    entry.is_driven = false;
                    entry.changed.notify_waiters();
                    return;
                }
                (next, entry.token.clone())
            };
            match next {
                Next::Send(command) => {
                    let _room = self.commands.acquire().await;
                    let answer = self.client.set_like(&token, &key.1, &command, None).await;
                    let mut is_decided = false;
                    if let Some(entry) = self.lock().get_mut(&key) {
                        match answer {
                            Ok(answer) => {
                                entry.session.answered(&command.operation_id, answer);
                                is_decided = true;
                            }
                            Err(Error::Undecided(_)) => entry.session.lost(&command.operation_id),
                            Err(Error::Wrong(status)) => {
                                let reason = status.message().to_owned();
                                is_decided = entry.session.turned_away(&command.operation_id, reason);
                            }
                        }
                    }
                    rounds = if is_decided { 0 } else { rounds + 1 };
                    if !is_decided {
                        tokio::time::sleep(UNDECIDED.mul_f64(0.5 + rand::random::<f64>())).await;
                    }
                }
                Next::Rest(time) => {
                    tokio::time::sleep(time).await;
                    if let Some(entry) = self.lock().get_mut(&key) {
                        entry.session.rested();
                    }
                }
                Next::Waiting | Next::Settled => return,
            }
        }
    }
}

fn shown(entries: &mut HashMap<Key, Entry>, user: &str, like: MyLike, position: Option<&str>) -> Shown {
    let state = parse_like_state(like.my_state).unwrap_or(LikeState::Unliked);
    let read = Known { state, version: like.relation_version };
    let number = like.count.as_ref().and_then(|count| count.display);
    let covers = like.count.as_ref().and_then(|count| count.covers_position);
    match entries.get_mut(&(user.to_owned(), like.video_id.clone())) {
        None => Shown { video_id: like.video_id, state, count: number, refusal: None },
        Some(entry) => {
            let state = entry.session.heart(read);
            let covers = covers.filter(|_| entry.session.position() == position);
            let count = number.map(|number| entry.session.count(number, covers));
            let refusal = entry.session.refusal().map(str::to_owned);
            Shown { video_id: like.video_id, state, count, refusal }
        }
    }
}
