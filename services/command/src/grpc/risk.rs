//! `RiskService`.

use std::sync::Arc;

use likewise_domain::id::{UserId, VideoId};
use likewise_kit::auth::{self, Identity, Role};
use likewise_kit::cursor::{Binding, CursorKeys};
use likewise_kit::errors;
use likewise_kit::pg::Pool;
use likewise_proto::convert::{parse_timestamp, timestamp};
use likewise_proto::risk::v1 as wire;
use likewise_proto::risk::v1::risk_service_server::RiskService;
use time::{Duration, OffsetDateTime};
use tonic::{Code, Request, Response, Status};
use uuid::Uuid;

use super::{Faults, within};
use crate::app::acts::Acts;
use crate::config::Settings;
use crate::risk::{ActKind, ActStatus, CannotDecide, Requester, Target, begins, may_decide};
use crate::store;
use crate::store::ledger::{self, Act, NewAct};
use crate::store::risk::Figures;

const TARGETS_MAX: usize = 2_000;
const REASON_BYTES_MAX: usize = 500;
const EVIDENCE_BYTES_MAX: usize = 2_000;
const PAGE_SIZE_MAX: u32 = 100;
const PAGE_SIZE_DEFAULT: u32 = 50;
const CURSOR_LIFE: Duration = Duration::hours(1);

/// Acts against abuse.
pub(crate) struct Risk {
    pub(crate) acts: Arc<Acts>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) cursors: Arc<CursorKeys>,
}

/// What every act is asked for with.
struct Asked<'a> {
    act_id: &'a str,
    reason: &'a str,
    evidence: &'a str,
}

impl Risk {
    /// The risk service or an operator who asks for an act.
    fn requester<T>(&self, request: &Request<T>) -> Result<(Requester, String), Status> {
        match auth::identity(request) {
            Identity::Service { name } if self.settings.risk_services.contains(name) => {
                Ok((Requester::Service, format!("service:{name}")))
            }
            Identity::Service { .. } => Err(errors::role_required("the token of a risk service")),
            _ => Ok((Requester::Operator, format!("operator:{}", auth::operator(request, Role::Operator)?))),
        }
    }

    fn viewer<T>(&self, request: &Request<T>) -> Result<String, Status> {
        match auth::identity(request) {
            Identity::Service { .. } => self.requester(request).map(|(_, name)| name),
            _ => auth::operator(request, Role::Viewer),
        }
    }

    async fn of_ledger<T>(&self, ask: impl AsyncFnOnce(&Pool) -> Result<T, store::Error>) -> Result<T, Status> {
        within(self.settings.read_timeout(), async { ask(self.acts.ledger().await).await }).await
    }

    async fn targets(&self, act_id: Uuid) -> Result<Vec<(i32, Target, bool)>, Status> {
        self.of_ledger(async |pool| ledger::targets(pool, act_id).await).await
    }

    async fn keep(&self, act: NewAct) -> Result<wire::Act, Status> {
        let made = self.of_ledger(async |pool| ledger::insert(pool, &act).await).await?;
        let kept = self.of_ledger(async |pool| ledger::get(pool, act.act_id).await).await?;
        let Some(kept) = kept else {
            let message = "the act is undone already, or another restore of it waits";
            return Err(errors::refused(Code::FailedPrecondition, "RESTORE_EXISTS", message));
        };
        if !made && !self.is_same(&kept, &act).await? {
            let message = "the act id belongs to another act; draw a new one";
            return Err(errors::refused(Code::AlreadyExists, "ACT_ID_REUSED", message));
        }
        self.acts.wake.notify_one();
        Ok(shown(&kept))
    }

    /// Whether what is kept is what was asked for.
    async fn is_same(&self, kept: &Act, asked: &NewAct) -> Result<bool, Status> {
        let targets = self.targets(kept.act_id).await?;
        let same = (kept.kind, &kept.reason, &kept.evidence, kept.until, kept.restores)
            == (asked.kind, &asked.reason, &asked.evidence, asked.until, asked.restores);
        Ok(same && targets.iter().map(|(_, target, _)| target).eq(&asked.targets))
    }

    async fn ask<T>(
        &self,
        request: &Request<T>,
        kind: ActKind,
        asked: Asked<'_>,
        targets: &[wire::ActTarget],
        until: Option<&prost_types::Timestamp>,
    ) -> Result<wire::Act, Status> {
        let (who, requester) = self.requester(request)?;
        let mut faults = Faults::default();
        let act_id = asked.read(&mut faults);
        let targets = read_targets(targets, kind, &mut faults);
        let until = until.map(|until| faults.time("until", until));
        let (Some(act_id), true) = (act_id, faults.0.is_empty()) else { return Err(faults.refuse()) };
        let status = begins(who, kind, targets.len(), self.settings.risk_auto_targets_max);
        self.keep(NewAct {
            act_id,
            kind,
            status,
            reason: asked.reason.to_owned(),
            evidence: asked.evidence.to_owned(),
            requester,
            until: until.flatten(),
            restores: None,
            targets,
        })
        .await
    }

    async fn find(&self, text: &str) -> Result<Act, Status> {
        let id = Uuid::parse_str(text).map_err(|_| errors::invalid_field("act_id", "must be a UUID"))?;
        let found = self.of_ledger(async |pool| ledger::get(pool, id).await).await?;
        found.ok_or_else(|| errors::refused(Code::NotFound, "ACT_NOT_FOUND", "there is no such act"))
    }

    async fn decide<T>(&self, request: &Request<T>, text: &str, status: ActStatus) -> Result<wire::Act, Status> {
        let approver = format!("operator:{}", auth::operator(request, Role::Approver)?);
        let act = self.find(text).await?;
        let not_proposed = || {
            let message = "the act was decided before, or needed no decision";
            errors::refused(Code::FailedPrecondition, "ACT_NOT_PROPOSED", message)
        };
        match may_decide(act.status, &act.requester, &approver) {
            Ok(()) => {}
            Err(CannotDecide::NotProposed) => return Err(not_proposed()),
            Err(CannotDecide::OwnAct) => {
                let message = "whoever asked for an act does not decide it";
                return Err(errors::refused(Code::FailedPrecondition, "OWN_ACT", message));
            }
        }
        let decide = async |pool: &Pool| ledger::decide(pool, act.act_id, status, &approver).await;
        let decided = self.of_ledger(decide).await?;
        if !decided {
            return Err(not_proposed());
        }
        self.acts.wake.notify_one();
        self.find(text).await.map(|act| shown(&act))
    }

    async fn page(&self, caller: &str, message: &wire::ListActsRequest) -> Result<wire::ListActsResponse, Status> {
        let size = match message.page_size {
            0 => PAGE_SIZE_DEFAULT,
            size if size <= PAGE_SIZE_MAX => size,
            _ => return Err(errors::invalid_field("page_size", format!("must be at most {PAGE_SIZE_MAX}"))),
        };
        let code = i16::try_from(message.status).unwrap_or(i16::MAX);
        let status = match ActStatus::from_code(code) {
            None if code != 0 => return Err(errors::invalid_field("status", "must be a state of an act")),
            status => status,
        };
        let filter = code.to_string();
        let binding = Binding { rpc: "likewise.risk.v1.RiskService/ListActs", caller, filter: &filter, generation: 0 };
        let after = match message.page_token.as_str() {
            "" => None,
            token => {
                let payload = self.cursors.open(&binding, OffsetDateTime::now_utc(), token)?;
                Some(read_key(&payload).ok_or_else(errors::internal)?)
            }
        };
        let acts = self.of_ledger(async |pool| ledger::list(pool, after, status, size).await).await?;
        let is_full = acts.len() == usize::try_from(size).unwrap_or(usize::MAX);
        let next_page_token = acts.last().filter(|_| is_full).map_or_else(String::new, |last| {
            let key = [last.created_at.unix_timestamp_nanos().to_be_bytes(), *last.act_id.as_bytes()].concat();
            self.cursors.seal(&binding, OffsetDateTime::now_utc() + CURSOR_LIFE, &key)
        });
        Ok(wire::ListActsResponse { acts: acts.iter().map(shown).collect(), next_page_token })
    }
}

impl Asked<'_> {
    fn read(&self, faults: &mut Faults) -> Option<Uuid> {
        for (field, text, most) in
            [("reason", self.reason, REASON_BYTES_MAX), ("evidence", self.evidence, EVIDENCE_BYTES_MAX)]
        {
            if text.is_empty() || text.len() > most || text.contains('\0') {
                faults.add(field, format!("must have 1..{most} bytes and no NUL character"));
            }
        }
        let id = Uuid::parse_str(self.act_id).ok();
        if id.is_none() {
            faults.add("act_id", "must be a UUID");
        }
        id
    }
}

impl Faults {
    fn time(&mut self, field: &str, wire: &prost_types::Timestamp) -> Option<OffsetDateTime> {
        // As PostgreSQL keeps it, so that the same act sent again is the same.
        let at = parse_timestamp(wire).and_then(|at| at.replace_nanosecond(at.microsecond() * 1_000).ok());
        if at.is_none() {
            self.add(field, "must be a time");
        }
        at
    }
}

fn read_targets(targets: &[wire::ActTarget], kind: ActKind, faults: &mut Faults) -> Vec<Target> {
    if targets.is_empty() || targets.len() > TARGETS_MAX {
        faults.add("targets", format!("must hold 1..{TARGETS_MAX} targets"));
        return Vec::new();
    }
    let mut read = Vec::with_capacity(targets.len());
    for (place, target) in targets.iter().enumerate() {
        let field = |name: &str| format!("targets[{place}].{name}");
        let user = (!target.user_id.is_empty()).then(|| faults.id(&field("user_id"), UserId::parse(&target.user_id)));
        let video =
            (!target.video_id.is_empty()).then(|| faults.id(&field("video_id"), VideoId::parse(&target.video_id)));
        if user.is_none() && (kind.excludes() || video.is_none()) {
            faults.add(&field("user_id"), "must name a user; only a freeze of a video is for everybody");
        }
        read.push(Target { user: user.flatten(), video: video.flatten() });
    }
    read
}

fn read_key(payload: &[u8]) -> Option<(OffsetDateTime, Uuid)> {
    let (at, id) = payload.split_first_chunk::<16>()?;
    let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from_be_bytes(*at)).ok()?;
    Some((at, Uuid::from_slice(id).ok()?))
}

fn shown(act: &Act) -> wire::Act {
    let figures = |figures: Option<Figures>| {
        figures.map(|figures| wire::ActFigures { liked: figures.liked, counted: figures.counted })
    };
    wire::Act {
        act_id: act.act_id.to_string(),
        kind: act.kind.code().into(),
        status: act.status.code().into(),
        reason: act.reason.clone(),
        evidence: act.evidence.clone(),
        requester: act.requester.clone(),
        approver: act.approver.clone(),
        targets: act.targets.0,
        targets_done: act.targets.1,
        frozen_until: act.until.map(timestamp),
        restores_act_id: act.restores.map(|id| id.to_string()).unwrap_or_default(),
        created_at: Some(timestamp(act.created_at)),
        applied_at: act.applied_at.map(timestamp),
        before: figures(act.before),
        after: figures(act.after),
    }
}

fn wire_target(target: &Target) -> wire::ActTarget {
    wire::ActTarget {
        user_id: target.user.as_ref().map(ToString::to_string).unwrap_or_default(),
        video_id: target.video.as_ref().map(ToString::to_string).unwrap_or_default(),
    }
}

#[tonic::async_trait]
impl RiskService for Risk {
    async fn exclude_from_count(
        &self,
        request: Request<wire::ExcludeFromCountRequest>,
    ) -> Result<Response<wire::ExcludeFromCountResponse>, Status> {
        let message = request.get_ref();
        let asked = Asked { act_id: &message.act_id, reason: &message.reason, evidence: &message.evidence };
        let act = self.ask(&request, ActKind::Exclude, asked, &message.targets, None).await?;
        Ok(Response::new(wire::ExcludeFromCountResponse { act: Some(act) }))
    }

    async fn freeze(&self, request: Request<wire::FreezeRequest>) -> Result<Response<wire::FreezeResponse>, Status> {
        let message = request.get_ref();
        let asked = Asked { act_id: &message.act_id, reason: &message.reason, evidence: &message.evidence };
        let act = self.ask(&request, ActKind::Freeze, asked, &message.targets, message.until.as_ref()).await?;
        Ok(Response::new(wire::FreezeResponse { act: Some(act) }))
    }

    async fn revoke(&self, request: Request<wire::RevokeRequest>) -> Result<Response<wire::RevokeResponse>, Status> {
        let message = request.get_ref();
        let asked = Asked { act_id: &message.act_id, reason: &message.reason, evidence: &message.evidence };
        let act = self.ask(&request, ActKind::Revoke, asked, &message.targets, message.until.as_ref()).await?;
        Ok(Response::new(wire::RevokeResponse { act: Some(act) }))
    }

    async fn restore(&self, request: Request<wire::RestoreRequest>) -> Result<Response<wire::RestoreResponse>, Status> {
        let (_, requester) = self.requester(&request)?;
        let message = request.get_ref();
        let mut faults = Faults::default();
        let asked = Asked { act_id: &message.act_id, reason: &message.reason, evidence: &message.evidence };
        let Some(act_id) = asked.read(&mut faults).filter(|_| faults.0.is_empty()) else {
            return Err(faults.refuse());
        };
        let undone = self.find(&message.restores_act_id).await?;
        if undone.kind == ActKind::Restore || ![ActStatus::Applied, ActStatus::Restored].contains(&undone.status) {
            let message = "only an applied act can be undone";
            return Err(errors::refused(Code::FailedPrecondition, "ACT_NOT_APPLIED", message));
        }
        let targets = self.targets(undone.act_id).await?;
        let act = self
            .keep(NewAct {
                act_id,
                kind: ActKind::Restore,
                status: ActStatus::Proposed,
                reason: message.reason.clone(),
                evidence: message.evidence.clone(),
                requester,
                until: None,
                restores: Some(undone.act_id),
                targets: targets.into_iter().map(|(_, target, _)| target).collect(),
            })
            .await?;
        Ok(Response::new(wire::RestoreResponse { act: Some(act) }))
    }

    async fn approve_act(
        &self,
        request: Request<wire::ApproveActRequest>,
    ) -> Result<Response<wire::ApproveActResponse>, Status> {
        let act = self.decide(&request, &request.get_ref().act_id, ActStatus::Running).await?;
        Ok(Response::new(wire::ApproveActResponse { act: Some(act) }))
    }

    async fn reject_act(
        &self,
        request: Request<wire::RejectActRequest>,
    ) -> Result<Response<wire::RejectActResponse>, Status> {
        let act = self.decide(&request, &request.get_ref().act_id, ActStatus::Rejected).await?;
        Ok(Response::new(wire::RejectActResponse { act: Some(act) }))
    }

    async fn get_act(&self, request: Request<wire::GetActRequest>) -> Result<Response<wire::GetActResponse>, Status> {
        self.viewer(&request)?;
        let act = self.find(&request.get_ref().act_id).await?;
        let targets = self.targets(act.act_id).await?;
        let targets = targets.iter().map(|(_, target, _)| wire_target(target)).collect();
        Ok(Response::new(wire::GetActResponse { act: Some(shown(&act)), targets }))
    }

    async fn list_acts(
        &self,
        request: Request<wire::ListActsRequest>,
    ) -> Result<Response<wire::ListActsResponse>, Status> {
        let caller = self.viewer(&request)?;
        self.page(&caller, request.get_ref()).await.map(Response::new)
    }
}
