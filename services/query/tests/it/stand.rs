//! Stands for facts, counter, authority and reverse index: tells what a test sets, can be away, and keeps a list of calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use likewise_proto::convert::{parse_timestamp, timestamp};
use likewise_proto::counter::v1 as counter;
use likewise_proto::counter::v1::count_service_server::{CountService, CountServiceServer};
use likewise_proto::facts::v1 as facts;
use likewise_proto::facts::v1::relation_facts_service_server::{RelationFactsService, RelationFactsServiceServer};
use likewise_proto::policy::v1 as policy;
use likewise_proto::policy::v1::policy_service_server::{PolicyService, PolicyServiceServer};
use likewise_proto::reverse_index::v1 as reverse;
use likewise_proto::reverse_index::v1::reverse_index_service_server::{ReverseIndexService, ReverseIndexServiceServer};
use likewise_proto::types::v1::{LaneOffset, LikeState};
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Request, Response, Status};

/// The author of every video.
pub(crate) const AUTHOR: &str = "ava";
/// Second 0 of the tests' time.
const BEGIN: i64 = 1_700_000_000;

pub(crate) fn second(second: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(BEGIN + second).expect("a time")
}

/// What is told.
#[derive(Default)]
pub(crate) struct Told {
    /// State, version and second by user and video.
    pub(crate) relations: BTreeMap<(String, String), (bool, u64, i64)>,
    /// Rows of the counter; a video without one counts 0.
    pub(crate) rows: BTreeMap<String, counter::DisplayCount>,
    pub(crate) progress: counter::Progress,
    /// Videos that differ from published, public and open.
    pub(crate) videos: BTreeMap<String, policy::VideoPolicy>,
    /// `(viewer, other)`.
    pub(crate) friends: BTreeSet<(String, String)>,
    pub(crate) blocked: BTreeSet<(String, String)>,
    /// Likers of every video, in the order of the list.
    pub(crate) likers: Vec<String>,
    /// Those whom the index hides.
    pub(crate) private: BTreeSet<String>,
    /// Generation of the index.
    pub(crate) generation: u64,
    /// A refusal of the index.
    pub(crate) refusal: Option<(Code, &'static str)>,
    /// Services that give no answer at once, by the name of the call.
    pub(crate) away: BTreeSet<&'static str>,
    /// Calls that never end.
    pub(crate) hanging: BTreeSet<&'static str>,
    /// Ids that are left out of every answer.
    pub(crate) forgotten: BTreeSet<String>,
    /// Calls so far, and whether one carried no token.
    pub(crate) calls: Vec<&'static str>,
    pub(crate) without_token: bool,
}

/// All of them on one port. Clones share what they tell.
#[derive(Clone)]
pub(crate) struct Stand {
    told: Arc<Mutex<Told>>,
}

impl Stand {
    /// Nobody likes anything, and everything up to now is covered.
    pub(crate) fn new() -> Self {
        let progress = counter::Progress {
            generation: 1,
            pass: 1,
            covered_until: Some(timestamp(OffsetDateTime::now_utc())),
            next_offsets: vec![LaneOffset { lane: "rel-02".to_owned(), epoch: 0, seq: 10 }],
            incomplete: false,
        };
        Self { told: Arc::new(Mutex::new(Told { progress, generation: 1, ..Told::default() })) }
    }

    /// Answers from now on; the endpoint of all of them.
    pub(crate) async fn serve(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let server = Server::builder()
            .add_service(RelationFactsServiceServer::new(self.clone()))
            .add_service(CountServiceServer::new(self.clone()))
            .add_service(PolicyServiceServer::new(self.clone()))
            .add_service(ReverseIndexServiceServer::new(self.clone()));
        tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
        endpoint
    }

    pub(crate) fn tell(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `lin+3@V1=7`: lin likes V1 at version 3 and second 7; `-` for unlikes.
    pub(crate) fn relations(&self, story: &str) {
        for word in story.split_whitespace() {
            let (change, place) = word.split_once('@').expect("a video");
            let (video, second) = place.split_once('=').expect("a second");
            let sign = change.find(['+', '-']).expect("a sign");
            let version = change[sign + 1..].parse().expect("a version");
            let relation = (change.as_bytes()[sign] == b'+', version, second.parse().expect("a second"));
            self.tell().relations.insert((change[..sign].to_owned(), video.to_owned()), relation);
        }
    }

    /// A row of the counter.
    pub(crate) fn row(&self, video: &str, raw: u64, risk: u64, policy: u64) {
        let row = counter::DisplayCount {
            video_id: video.to_owned(),
            raw,
            risk_hidden: risk,
            policy_hidden: policy,
            display: raw - risk - policy,
            generated_at: Some(timestamp(second(1))),
            snapshot_id: "g1.p7".to_owned(),
            approximate: false,
        };
        self.tell().rows.insert(video.to_owned(), row);
    }

    /// Changes the policy of a video.
    pub(crate) fn video(&self, video: &str, change: impl FnOnce(&mut policy::VideoPolicy)) {
        change(self.tell().videos.entry(video.to_owned()).or_insert_with(|| open(video)));
    }

    pub(crate) fn calls(&self, name: &str) -> usize {
        self.tell().calls.iter().filter(|call| **call == name).count()
    }

    /// Every call comes through here.
    async fn asked<T>(&self, name: &'static str, request: &Request<T>) -> Result<MutexGuard<'_, Told>, Status> {
        let hangs = {
            let mut told = self.tell();
            told.calls.push(name);
            told.without_token |= !request.metadata().contains_key("authorization");
            told.hanging.contains(name)
        };
        if hangs {
            std::future::pending::<()>().await;
        }
        let told = self.tell();
        if told.away.contains(name) { Err(Status::unavailable("away")) } else { Ok(told) }
    }
}

fn open(video: &str) -> policy::VideoPolicy {
    policy::VideoPolicy {
        video_id: video.to_owned(),
        status: policy::VideoStatus::Published.into(),
        visibility: policy::VideoVisibility::Public.into(),
        author_id: AUTHOR.to_owned(),
        likers_visible: policy::LikersVisible::Everyone.into(),
        count_visible: true,
        version: 1,
    }
}

fn relation(video: &str, (likes, version, at): (bool, u64, i64)) -> facts::Relation {
    facts::Relation {
        video_id: video.to_owned(),
        state: if likes { LikeState::Liked } else { LikeState::Unliked }.into(),
        relation_version: version,
        state_changed_at: (version > 0).then(|| timestamp(second(at))),
    }
}

#[tonic::async_trait]
impl RelationFactsService for Stand {
    async fn batch_get_relations(
        &self,
        request: Request<facts::BatchGetRelationsRequest>,
    ) -> Result<Response<facts::BatchGetRelationsResponse>, Status> {
        let told = self.asked("facts", &request).await?;
        let facts::BatchGetRelationsRequest { user_id, video_ids } = request.into_inner();
        let known = video_ids.into_iter().filter(|id| !told.forgotten.contains(id));
        let relations = known.map(|id| {
            let kept = told.relations.get(&(user_id.clone(), id.clone())).copied();
            relation(&id, kept.unwrap_or((false, 0, 0)))
        });
        Ok(Response::new(facts::BatchGetRelationsResponse { relations: relations.collect() }))
    }

    async fn list_user_likes(
        &self,
        request: Request<facts::ListUserLikesRequest>,
    ) -> Result<Response<facts::ListUserLikesResponse>, Status> {
        let told = self.asked("likes", &request).await?;
        let facts::ListUserLikesRequest { user_id, page_size, after } = request.into_inner();
        let own = told.relations.iter().filter(|((user, _), kept)| *user == user_id && kept.0);
        let mut rows: Vec<_> = own.map(|((_, video), kept)| (second(kept.2), video.clone(), *kept)).collect();
        rows.sort_by(|one, other| other.cmp(one));
        if let Some(after) = after {
            let at = after.state_changed_at.as_ref().and_then(parse_timestamp).expect("a time");
            rows.retain(|row| (row.0, &row.1) < (at, &after.video_id));
        }
        rows.truncate(page_size as usize);
        let relations = rows.iter().map(|(_, video, kept)| relation(video, *kept)).collect();
        Ok(Response::new(facts::ListUserLikesResponse { relations }))
    }

    type ScanRelationsStream = tonic::codegen::BoxStream<facts::ScanRelationsResponse>;

    async fn scan_relations(
        &self,
        _: Request<facts::ScanRelationsRequest>,
    ) -> Result<Response<Self::ScanRelationsStream>, Status> {
        Err(not_asked())
    }

    async fn get_shard_watermarks(
        &self,
        _: Request<facts::GetShardWatermarksRequest>,
    ) -> Result<Response<facts::GetShardWatermarksResponse>, Status> {
        Err(not_asked())
    }

    async fn acquire_write_barrier(
        &self,
        _: Request<facts::AcquireWriteBarrierRequest>,
    ) -> Result<Response<facts::AcquireWriteBarrierResponse>, Status> {
        Err(not_asked())
    }

    async fn prove_write_barrier(
        &self,
        _: Request<facts::ProveWriteBarrierRequest>,
    ) -> Result<Response<facts::ProveWriteBarrierResponse>, Status> {
        Err(not_asked())
    }

    async fn release_write_barrier(
        &self,
        _: Request<facts::ReleaseWriteBarrierRequest>,
    ) -> Result<Response<facts::ReleaseWriteBarrierResponse>, Status> {
        Err(not_asked())
    }

    async fn find_operation(
        &self,
        _: Request<facts::FindOperationRequest>,
    ) -> Result<Response<facts::FindOperationResponse>, Status> {
        Err(not_asked())
    }

    async fn find_event(
        &self,
        _: Request<facts::FindEventRequest>,
    ) -> Result<Response<facts::FindEventResponse>, Status> {
        Err(not_asked())
    }
}

/// What this service never asks of another.
fn not_asked() -> Status {
    Status::unimplemented("nobody asks for it here")
}

#[tonic::async_trait]
impl CountService for Stand {
    async fn batch_get_counts(
        &self,
        request: Request<counter::BatchGetCountsRequest>,
    ) -> Result<Response<counter::BatchGetCountsResponse>, Status> {
        let told = self.asked("counts", &request).await?;
        let row = |id: String| {
            let none = counter::DisplayCount {
                generated_at: Some(timestamp(second(1))),
                snapshot_id: "g1.p0".to_owned(),
                ..counter::DisplayCount::default()
            };
            told.rows.get(&id).cloned().unwrap_or(counter::DisplayCount { video_id: id, ..none })
        };
        let known = request.into_inner().video_ids.into_iter().filter(|id| !told.forgotten.contains(id));
        let counts = known.map(row).collect();
        Ok(Response::new(counter::BatchGetCountsResponse { counts, progress: Some(told.progress.clone()) }))
    }

    async fn get_progress(
        &self,
        request: Request<counter::GetProgressRequest>,
    ) -> Result<Response<counter::GetProgressResponse>, Status> {
        let told = self.asked("progress", &request).await?;
        Ok(Response::new(counter::GetProgressResponse { progress: Some(told.progress.clone()) }))
    }
}

#[tonic::async_trait]
impl PolicyService for Stand {
    async fn batch_get_video_policies(
        &self,
        request: Request<policy::BatchGetVideoPoliciesRequest>,
    ) -> Result<Response<policy::BatchGetVideoPoliciesResponse>, Status> {
        let told = self.asked("policy", &request).await?;
        let ids = request.into_inner().video_ids;
        let policies = ids.iter().map(|id| told.videos.get(id).cloned().unwrap_or_else(|| open(id))).collect();
        Ok(Response::new(policy::BatchGetVideoPoliciesResponse { policies }))
    }

    async fn batch_get_account_policies(
        &self,
        request: Request<policy::BatchGetAccountPoliciesRequest>,
    ) -> Result<Response<policy::BatchGetAccountPoliciesResponse>, Status> {
        drop(self.asked("accounts", &request).await?);
        Ok(Response::new(policy::BatchGetAccountPoliciesResponse::default()))
    }

    async fn batch_check_pairs(
        &self,
        request: Request<policy::BatchCheckPairsRequest>,
    ) -> Result<Response<policy::BatchCheckPairsResponse>, Status> {
        let told = self.asked("pairs", &request).await?;
        let policy::BatchCheckPairsRequest { viewer_id, other_ids } = request.into_inner();
        let pair = |other_id: String| {
            let key = (viewer_id.clone(), other_id);
            policy::Pair {
                friends: told.friends.contains(&key),
                blocked: told.blocked.contains(&key),
                follows: told.friends.contains(&key),
                other_id: key.1,
            }
        };
        Ok(Response::new(policy::BatchCheckPairsResponse { pairs: other_ids.into_iter().map(pair).collect() }))
    }

    async fn list_changed_since(
        &self,
        _: Request<policy::ListChangedSinceRequest>,
    ) -> Result<Response<policy::ListChangedSinceResponse>, Status> {
        Ok(Response::new(policy::ListChangedSinceResponse::default()))
    }
}

#[tonic::async_trait]
impl ReverseIndexService for Stand {
    async fn list_likers(
        &self,
        request: Request<reverse::ListLikersRequest>,
    ) -> Result<Response<reverse::ListLikersResponse>, Status> {
        let told = self.asked("likers", &request).await?;
        let message = request.into_inner();
        if let Some((code, reason)) = told.refusal {
            return Err(likewise_kit::errors::refused(code, reason, "the index refuses"));
        }
        let after = match &message.after {
            Some(after) if after.generation != told.generation => {
                return Err(likewise_kit::errors::refused(Code::FailedPrecondition, "CURSOR_EXPIRED", "rebuilt"));
            }
            Some(after) => after.shards[0].user_id.clone(),
            None => String::new(),
        };
        // A list of one shard, by name; nobody but themselves sees those who are private.
        let page: Vec<&String> =
            told.likers.iter().filter(|name| **name > after).take(message.page_size as usize).collect();
        let shown = |name: &&&String| !told.private.contains(**name) || **name == &message.viewer_id;
        let hidden_by_policy = u32::try_from(page.iter().filter(|name| !shown(name)).count()).expect("few");
        let likers = page
            .iter()
            .filter(shown)
            .map(|name| reverse::Liker { user_id: (*name).clone(), liked_at: Some(timestamp(second(1))) });
        let next = page.last().filter(|last| **last != told.likers.last().expect("some")).map(|last| {
            let liked_at = Some(timestamp(second(1)));
            let shards = vec![reverse::ShardFrontier { reverse_shard: 0, liked_at, user_id: (*last).clone() }];
            reverse::Frontier { generation: told.generation, shards }
        });
        let watermarks = vec![LaneOffset { lane: "rel-00".to_owned(), epoch: 0, seq: 41 }];
        Ok(Response::new(reverse::ListLikersResponse { likers: likers.collect(), next, hidden_by_policy, watermarks }))
    }
}
