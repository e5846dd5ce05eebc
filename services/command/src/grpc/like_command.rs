//! `LikeCommandService`.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::future::join_all;
use likewise_domain::id::{OperationId, UserId, VideoId};
use likewise_domain::relation::LikeState;
use likewise_kit::auth::{Proof, UserClaims, Verifier};
use likewise_kit::{auth, deadline, errors, peer};
use likewise_proto::command::v1::like_command_service_server::LikeCommandService;
use likewise_proto::command::v1::set_like_result::Result as Told;
use likewise_proto::command::v1::{
    BatchSetLikeRequest, BatchSetLikeResponse, GetOperationRequest, GetOperationResponse, SetLikeRequest,
    SetLikeResponse, SetLikeResult, SetLikeStreamRequest,
};
use likewise_proto::convert;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Response, Status, Streaming};

use super::stream::{Answers, Conversation};
use super::told::{current, error, leaves_open, limited, respond, unanswered, verdict};
use super::{Faults, parse, shard_away, token_user, within};
use crate::app::limits::{Caller, Limits};
use crate::app::policies::Policies;
use crate::app::shards::{Shard, Shards};
use crate::config::Settings;
use crate::intent::Intent;
use crate::metrics::StreamMetrics;
use crate::store::operations;

/// Methods as a device names them in what it signs; a command on a stream is signed as one for itself.
pub(super) const SET_LIKE: &str = "/likewise.command.v1.LikeCommandService/SetLike";
const BATCH_SET_LIKE: &str = "/likewise.command.v1.LikeCommandService/BatchSetLike";
/// Commands in one `BatchSetLike`.
const ITEMS_MAX: usize = 100;

/// Commands of end users. Clones share everything.
#[derive(Clone)]
pub(crate) struct Commands {
    pub(crate) shards: Arc<Shards>,
    pub(crate) policies: Arc<Policies>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) limits: Arc<Limits>,
    /// Proxies in front that name the caller's address.
    pub(crate) trusted_proxies: u8,
    /// Verifies the users of a stream.
    pub(crate) verifier: Verifier,
    pub(crate) streams: StreamMetrics,
    /// Streams end when the process is asked to.
    pub(crate) draining: CancellationToken,
}

impl Commands {
    fn shard(&self, user: &UserId) -> Result<&Arc<Shard>, Status> {
        self.shards.of(user).ok_or_else(errors::internal)
    }

    /// How long to wait for a verdict: short of the caller's own deadline, so that the caller is told OUTCOME_PENDING
    /// and not left without an answer.
    fn patience(&self) -> Duration {
        let most = self.settings.answer_timeout();
        deadline::remaining().map_or(most, |left| most.min(left - left / 16))
    }

    /// One command.
    pub(super) fn parse(&self, user: &UserId, message: &SetLikeRequest) -> Result<Intent, Status> {
        let mut faults = Faults::default();
        let intent = parse::intent(user, message, self.settings.require_dated_ids, "", &mut faults);
        intent.filter(|_| faults.0.is_empty()).ok_or_else(|| faults.refuse())
    }

    fn parse_all(&self, user: &UserId, messages: &[SetLikeRequest]) -> Result<Vec<Intent>, Status> {
        let mut faults = Faults::default();
        if messages.is_empty() || messages.len() > ITEMS_MAX {
            faults.add("items", format!("must hold 1..{ITEMS_MAX} commands"));
        }
        let mut intents = Vec::with_capacity(messages.len());
        for (place, message) in messages.iter().take(ITEMS_MAX).enumerate() {
            let prefix = format!("items[{place}].");
            intents.extend(parse::intent(user, message, self.settings.require_dated_ids, &prefix, &mut faults));
        }
        if faults.0.is_empty() { Ok(intents) } else { Err(faults.refuse()) }
    }

    /// Whether well-formed commands come from the device of their token, where that is asked for.
    pub(super) fn check_proof(
        &self,
        claims: &UserClaims,
        method: &str,
        messages: &[SetLikeRequest],
        proof: Proof<'_>,
    ) -> Result<(), Status> {
        let policy = self.settings.proof_policy();
        if !policy.asks(claims) {
            return Ok(());
        }
        let lines: Vec<String> = messages.iter().map(parse::signed_line).collect();
        policy.check(claims, method, &lines, proof, SystemTime::now())
    }

    /// Whether so many commands are admitted. Asked once a call is known to be well-formed.
    pub(super) fn admit(
        &self,
        intents: &[Intent],
        device: Option<&str>,
        address: Option<IpAddr>,
    ) -> Result<(), Status> {
        let Some(first) = intents.first() else { return Ok(()) };
        let caller = Caller { account: first.user_id.as_str(), device, address };
        self.limits.check(caller, u32::try_from(intents.len()).unwrap_or(u32::MAX)).map_err(limited)?;
        for intent in intents {
            let unlikes = intent.command.desired_state == LikeState::Unliked;
            let video = intent.command.video_id.as_str();
            self.limits.note(&intent.user_id, unlikes, intent.device_hash.as_ref(), video);
        }
        Ok(())
    }

    /// Finds a verdict for a command.
    pub(super) async fn set(&self, mut intent: Intent) -> Result<SetLikeResponse, Status> {
        let shard = self.shard(&intent.user_id)?;
        // What is no longer visible can always be unliked.
        if intent.command.desired_state == LikeState::Liked {
            intent.command.refusal = self.policies.refusal(&intent.user_id, &intent.command.video_id).await;
        }
        let operation_id = intent.operation_id.clone();
        let answer = shard.submit(intent, self.patience()).await.map_err(unanswered)?;
        respond(shard.number, &operation_id, &answer)
    }

    /// Commands of one relation, in order; none goes past one that may still be decided.
    async fn set_in_order(&self, intents: Vec<(usize, Intent)>) -> Vec<(usize, SetLikeResult)> {
        let mut results = Vec::with_capacity(intents.len());
        let mut is_open = false;
        for (place, intent) in intents {
            let told = if is_open { Err(errors::outcome_pending()) } else { self.set(intent).await };
            is_open = told.as_ref().is_err_and(leaves_open);
            results.push((place, result(told)));
        }
        results
    }
}

/// Verdict or error of one command among several.
pub(super) fn result(told: Result<SetLikeResponse, Status>) -> SetLikeResult {
    SetLikeResult { result: Some(told.map_or_else(|status| Told::Error(error(&status)), Told::Response)) }
}

#[tonic::async_trait]
impl LikeCommandService for Commands {
    type SetLikeStreamStream = Answers;

    async fn set_like(&self, request: Request<SetLikeRequest>) -> Result<Response<SetLikeResponse>, Status> {
        let claims = auth::user_claims(&request)?;
        let intent = self.parse(&token_user(&claims.sub)?, request.get_ref())?;
        self.check_proof(claims, SET_LIKE, std::slice::from_ref(request.get_ref()), Proof::of(&request))?;
        let address = peer::address(&request, self.trusted_proxies);
        self.admit(std::slice::from_ref(&intent), request.get_ref().device_id.as_deref(), address)?;
        self.set(intent).await.map(Response::new)
    }

    async fn batch_set_like(
        &self,
        request: Request<BatchSetLikeRequest>,
    ) -> Result<Response<BatchSetLikeResponse>, Status> {
        let claims = auth::user_claims(&request)?;
        let items = &request.get_ref().items;
        let intents = self.parse_all(&token_user(&claims.sub)?, items)?;
        self.check_proof(claims, BATCH_SET_LIKE, items, Proof::of(&request))?;
        let device = items.iter().find_map(|item| item.device_id.as_deref());
        self.admit(&intents, device, peer::address(&request, self.trusted_proxies))?;
        let mut relations: HashMap<VideoId, Vec<(usize, Intent)>> = HashMap::with_capacity(intents.len());
        for (place, intent) in intents.into_iter().enumerate() {
            relations.entry(intent.command.video_id.clone()).or_default().push((place, intent));
        }
        let told = join_all(relations.into_values().map(|intents| self.set_in_order(intents))).await;
        let mut results: Vec<(usize, SetLikeResult)> = told.into_iter().flatten().collect();
        results.sort_unstable_by_key(|(place, _)| *place);
        let results = results.into_iter().map(|(_, result)| result).collect();
        Ok(Response::new(BatchSetLikeResponse { results }))
    }

    async fn set_like_stream(
        &self,
        request: Request<Streaming<SetLikeStreamRequest>>,
    ) -> Result<Response<Answers>, Status> {
        auth::service(&request)?;
        Ok(Response::new(Conversation::begin(self.clone(), request.into_inner())))
    }

    async fn get_operation(
        &self,
        request: Request<GetOperationRequest>,
    ) -> Result<Response<GetOperationResponse>, Status> {
        let user = token_user(&auth::user(&request)?)?;
        let parsed = OperationId::parse(&request.get_ref().operation_id);
        let id = parsed.map_err(|error| errors::invalid_field("operation_id", error.to_string()))?;
        let shard = self.shard(&user)?;
        if !shard.is_up() {
            return Err(shard_away());
        }
        let found = within(self.settings.read_timeout(), operations::find(&shard.pool, &user, &id)).await?;
        let Some(found) = found else {
            let message = "no verdict yet; send the same command with the same operation id again";
            return Err(errors::refused(Code::NotFound, "OPERATION_NOT_FOUND", message));
        };
        Ok(Response::new(GetOperationResponse {
            operation: Some(verdict(&id, &found.verdict)),
            video_id: found.video_id,
            desired_state: convert::like_state(found.desired_state).into(),
            decided_at: Some(convert::timestamp(found.decided_at)),
            current: Some(current(&found.current)),
        }))
    }
}
