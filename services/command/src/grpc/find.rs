//! Operations and events, looked up for people.

use futures::future::join_all;
use likewise_domain::decide::Outcome;
use likewise_domain::id::{OperationId, UserId};
use likewise_kit::errors;
use likewise_proto::convert::{self, relation_changed, relation_hidden_changed};
use likewise_proto::facts::v1::find_event_request::Key;
use likewise_proto::facts::v1::find_event_response::Event as Found;
use likewise_proto::facts::v1::{
    FindEventRequest, FindEventResponse, FindOperationRequest, FindOperationResponse, Relation,
};
use tonic::{Code, Status};
use uuid::Uuid;

use super::{Facts, Faults, RETRY_AFTER, failed, wire_state, within};
use crate::app::shards::Shard;
use crate::store::operations;
use crate::store::outbox::{self, Event};

fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Applied => "APPLIED",
        Outcome::Unchanged => "UNCHANGED",
        Outcome::StaleBase => "STALE_BASE",
        Outcome::RateLimited => "RATE_LIMITED",
        Outcome::Frozen => "FROZEN",
        Outcome::AccountNotActive => "ACCOUNT_NOT_ACTIVE",
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn no_event() -> Status {
    errors::refused(Code::NotFound, "EVENT_NOT_FOUND", "no shard holds this event any more, or ever did")
}

impl Facts {
    pub(super) async fn operation(&self, request: FindOperationRequest) -> Result<FindOperationResponse, Status> {
        let mut faults = Faults::default();
        let user = faults.id("user_id", UserId::parse(&request.user_id));
        let id = faults.id("operation_id", OperationId::parse(&request.operation_id));
        let (Some(user), Some(id)) = (user, id) else { return Err(faults.refuse()) };
        let shard = self.shard(&user)?;
        let both = async {
            let found = operations::find(&shard.pool, &user, &id).await?;
            Ok(found.zip(operations::kept(&shard.pool, &user, &id).await?))
        };
        let Some((found, kept)) = within(self.settings.read_timeout(), both).await? else {
            let message = "this user has no verdict under this operation id";
            return Err(errors::refused(Code::NotFound, "OPERATION_NOT_FOUND", message));
        };
        let (state, relation_version, state_changed_at) = wire_state(&found.current);
        Ok(FindOperationResponse {
            shard: shard.number.into(),
            video_id: found.video_id.clone(),
            desired_state: convert::like_state(found.desired_state).into(),
            outcome: outcome(found.verdict.outcome).to_owned(),
            state: convert::like_state(found.verdict.state).into(),
            relation_version: found.verdict.version,
            decided_at: Some(convert::timestamp(found.decided_at)),
            base_version: kept.base_version,
            client_sequence: kept.client_sequence,
            device_hash: kept.device_hash.as_deref().map(hexadecimal).unwrap_or_default(),
            current: Some(Relation { video_id: found.video_id, state, relation_version, state_changed_at }),
        })
    }

    pub(super) async fn event(&self, request: FindEventRequest) -> Result<FindEventResponse, Status> {
        match request.key {
            Some(Key::Number(number)) => self.event_numbered(self.numbered(number.shard)?, number.seq).await,
            Some(Key::EventId(id)) => {
                let id = Uuid::parse_str(&id).map_err(|_| errors::invalid_field("event_id", "must be a UUID"))?;
                // Every row of every shard may have to be read.
                let _room = self.scans.clone().try_acquire_owned().map_err(|_| errors::overloaded(RETRY_AFTER))?;
                let found = join_all(self.shards.all().iter().map(|shard| async move {
                    let number = outbox::number_of(&shard.pool, id).await.map_err(|error| failed(&error))?;
                    Ok::<_, Status>(number.map(|number| (shard, number)))
                }));
                let mut away = None;
                for found in found.await {
                    match found {
                        Ok(Some((shard, number))) => return self.event_numbered(shard, number).await,
                        Ok(None) => {}
                        Err(status) => away = Some(status),
                    }
                }
                // A shard that did not answer may hold it.
                Err(away.unwrap_or_else(no_event))
            }
            None => Err(errors::invalid_field("key", "must be an event id, or shard and number")),
        }
    }

    async fn event_numbered(&self, shard: &Shard, seq: u64) -> Result<FindEventResponse, Status> {
        let before = seq.checked_sub(1).ok_or_else(no_event)?;
        let both = async {
            let found = outbox::read_after(&shard.pool, shard.number, before, 1).await?;
            Ok((found, outbox::stream_of(&shard.pool, seq).await?))
        };
        let (found, stream) = within(self.settings.read_timeout(), both).await?;
        let stored = found.into_iter().find(|stored| stored.seq == seq).ok_or_else(no_event)?;
        let event = match &stored.event {
            Event::Changed(event) => Found::RelationChanged(relation_changed(event)),
            Event::HiddenChanged(event) => Found::RelationHiddenChanged(relation_hidden_changed(event)),
        };
        Ok(FindEventResponse {
            event: Some(event),
            committed_at: Some(convert::timestamp(stored.created_at)),
            stream: stream.unwrap_or_default(),
        })
    }
}
