//! What the authority for accounts and videos tells through its lane.
//!
//! Two readers, because there are two kinds of knowledge. [`Accounts`] is durable: each shard follows the lane for its own
//! users, with lease, checkpoint and effect in the shard's own schema, so that a shard restored to an older state reads
//! again what it lost. [`follow`] is this process's memory of policies: every process listens to the live subject by
//! itself, without lease or checkpoint. While it may miss some, the memory does not serve without asking.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use likewise_domain::id::{UserId, VideoId};
use likewise_kit::lanes::{ApplyError, Echo, Lane, LaneMessage, Projection, Runtime, SubscribeError, Touch};
use likewise_proto::convert::{ACCOUNT_CHANGED, BLOCK_SET_CHANGED, VIDEO_POLICY_CHANGED, parse_timestamp};
use likewise_proto::events::v1::{AccountChanged, BlockSetChanged, VideoPolicyChanged};
use prost::Message as _;
use tokio_util::sync::CancellationToken;

use crate::app::policies::Policies;
use crate::app::shards::{Shard, Shards};
use crate::clients::snapshot;
use crate::store;
use crate::store::accounts::{self, Account, Owner, Unreadable};

/// The authority's only lane.
pub(crate) const AUTHORITY_LANE: Lane = Lane { class: "content", shard: 0 };
/// Most bytes of a malformed message that are kept. No event of the authority comes near.
const PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// Keeps the account states of one shard's users.
pub(crate) struct Accounts {
    pub(crate) shard: Arc<Shard>,
    pub(crate) shards: Arc<Shards>,
}

impl Accounts {
    fn owns(&self, user: &UserId) -> bool {
        self.shards.number(user) == usize::from(self.shard.number)
    }

    /// The newest word on each account of this shard, and what could not be understood.
    fn read(&self, batch: &[LaneMessage]) -> (Vec<Account>, Vec<Unreadable>) {
        let mut newest: HashMap<UserId, Account> = HashMap::new();
        let mut unreadable = Vec::new();
        for message in batch {
            match account(message) {
                Ok(Some(account)) if self.owns(&account.user_id) => {
                    let known = newest.get(&account.user_id).map_or(0, |known| known.version);
                    if account.version >= known {
                        newest.insert(account.user_id.clone(), account);
                    }
                }
                Ok(_) => {}
                Err(reason) => unreadable.push(Unreadable {
                    offset: message.offset,
                    event_id: message.event_id,
                    schema: message.schema.clone(),
                    payload: message.payload[..message.payload.len().min(PAYLOAD_BYTES_MAX)].to_vec(),
                    reason,
                }),
            }
        }
        let mut accounts: Vec<Account> = newest.into_values().collect();
        accounts.sort_unstable_by(|one, other| one.user_id.cmp(&other.user_id));
        (accounts, unreadable)
    }
}

/// What a message says about an account; `None` when it is about something else this service need not keep.
fn account(message: &LaneMessage) -> Result<Option<Account>, String> {
    match message.schema.as_str() {
        ACCOUNT_CHANGED => {}
        VIDEO_POLICY_CHANGED | BLOCK_SET_CHANGED => return Ok(None),
        other => return Err(format!("schema {other:?} is not known here")),
    }
    let event = AccountChanged::decode(message.payload.clone()).map_err(|error| error.to_string())?;
    let policy = event.policy.ok_or("field policy is missing")?;
    let user_id = UserId::parse(&policy.user_id).map_err(|error| format!("field user_id {error}"))?;
    let changed_at = event.changed_at.as_ref().and_then(parse_timestamp).ok_or("field changed_at is missing")?;
    // A state of a later contract is kept as it is: it is not ACTIVE, and so closed.
    let state = i16::try_from(policy.state).map_err(|_| "field state is out of range")?;
    Ok(Some(Account { user_id, state, version: policy.version, changed_at }))
}

fn retry(error: &store::Error) -> ApplyError {
    ApplyError::Retry(error.chain())
}

impl Projection for Accounts {
    fn name(&self) -> String {
        format!("command.accounts.{:02}", self.shard.number)
    }

    async fn apply(&self, lane: &Lane, owner_epoch: i64, batch: &[LaneMessage]) -> Result<(), ApplyError> {
        let (changed, unreadable) = self.read(batch);
        if changed.is_empty() && unreadable.is_empty() {
            return Ok(());
        }
        for message in &unreadable {
            tracing::error!(%lane, offset = %message.offset, reason = message.reason, "a message goes to quarantine");
        }
        let (projection, lane) = (self.name(), lane.to_string());
        let owner = Owner { projection: &projection, lane: &lane, epoch: owner_epoch };
        let applied = accounts::apply(&self.shard.pool, self.shard.number, owner, &changed, &unreadable).await;
        if !applied.map_err(|error| retry(&error))? {
            return Err(ApplyError::Fenced);
        }
        // A changed state may have asked for a sweep.
        self.shard.sweep.notify_one();
        Ok(())
    }

    async fn fence(&self, lane: &Lane, owner_epoch: i64) -> Result<(), ApplyError> {
        let (projection, lane) = (self.name(), lane.to_string());
        let owner = Owner { projection: &projection, lane: &lane, epoch: owner_epoch };
        let newest = accounts::fence(&self.shard.pool, owner).await.map_err(|error| retry(&error))?;
        if newest { Ok(()) } else { Err(ApplyError::Fenced) }
    }

    async fn quarantined(&self, lane: &Lane) -> u64 {
        let open = accounts::quarantined(&self.shard.pool, &self.name(), &lane.to_string()).await;
        open.unwrap_or_else(|error| {
            tracing::warn!(shard = self.shard.number, error = error.chain(), "quarantine cannot be counted");
            0
        })
    }
}

/// How long until the authority's events are listened to again.
const AGAIN: Duration = Duration::from_secs(1);

/// Forgets, or learns, policies as the authority tells of changes, until the process stops.
pub(crate) async fn follow(runtime: Runtime, policies: Arc<Policies>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        match stop.run_until_cancelled(listen(&runtime, &policies)).await {
            None => return,
            Some(Ok(())) => tracing::warn!("the authority's events ended; listening again"),
            Some(Err(error)) => tracing::warn!(%error, "the authority's events cannot be heard; trying again"),
        }
        policies.lose_touch();
        stop.run_until_cancelled(tokio::time::sleep(AGAIN)).await;
    }
}

async fn listen(runtime: &Runtime, policies: &Policies) -> Result<(), SubscribeError> {
    // One token per epoch of the lane; the epoch is the last.
    let subject = likewise_kit::lanes::subject(&runtime.settings.stream_prefix, &AUTHORITY_LANE, 0);
    let subject = subject.rsplit_once('.').map_or(subject.clone(), |(lane, _)| format!("{lane}.*"));
    let nats = &runtime.nats;
    let mut messages = nats.subscribe(subject).await?;
    // Subscribed behind the events: a broker that knows of this one knows of the other.
    let mut echo = Echo::listen(nats).await?;
    loop {
        tokio::select! {
            message = messages.next() => {
                let Some(message) = message else { return Ok(()) };
                let schema = message.headers.as_ref().and_then(|headers| headers.get(SCHEMA_HEADER));
                if let Some(schema) = schema {
                    learn(policies, schema.as_str(), message.payload.clone()).await;
                }
            }
            touch = echo.change() => match touch {
                Some(Touch::Found) => policies.come_in_touch(),
                Some(Touch::Lost) => policies.lose_touch(),
                None => return Ok(()),
            },
        }
    }
}

/// Name of the payload's message type; see `likewise_kit::lanes`.
const SCHEMA_HEADER: &str = "Likewise-Schema";

/// Malformed messages are passed here: the durable reader quarantines them.
async fn learn(policies: &Policies, schema: &str, payload: bytes::Bytes) {
    match schema {
        VIDEO_POLICY_CHANGED => {
            let Some(policy) = VideoPolicyChanged::decode(payload).ok().and_then(|event| event.policy) else { return };
            if let Ok(id) = VideoId::parse(&policy.video_id) {
                policies.video_changed(&id, snapshot(&policy)).await;
            }
        }
        BLOCK_SET_CHANGED => {
            let Ok(event) = BlockSetChanged::decode(payload) else { return };
            if let Ok(user) = UserId::parse(&event.user_id) {
                policies.blocks_changed(&user, event.version).await;
            }
        }
        _ => {}
    }
}
