//! Stands for the authority: tells the policies that a test sets, and can be away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use likewise_proto::policy::v1::policy_service_server::{PolicyService, PolicyServiceServer};
use likewise_proto::policy::v1::{
    AccountPolicy, AccountState, BatchCheckPairsRequest, BatchCheckPairsResponse, BatchGetAccountPoliciesRequest,
    BatchGetAccountPoliciesResponse, BatchGetVideoPoliciesRequest, BatchGetVideoPoliciesResponse, LikersVisible,
    ListChangedSinceRequest, ListChangedSinceResponse, Pair, VideoPolicy, VideoStatus, VideoVisibility,
};
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use crate::rig::VIDEO;

/// The author of the video.
pub(crate) const AUTHOR: &str = "ava";

/// What it tells. Accounts are open and strangers unless something is set here.
pub(crate) struct Told {
    pub(crate) video: VideoPolicy,
    pub(crate) accounts: BTreeMap<String, AccountPolicy>,
    /// Pairs that block each other, in either order.
    pub(crate) blocks: BTreeSet<(String, String)>,
    /// `(viewer, other)`.
    pub(crate) follows: BTreeSet<(String, String)>,
    /// Questions that get no answer: `video`, `account`, `pair`.
    pub(crate) away: BTreeSet<&'static str>,
    /// An account that is left out of every answer.
    pub(crate) forgotten: Option<String>,
}

/// The authority. Clones share what it tells.
#[derive(Clone)]
pub(crate) struct Authority {
    told: Arc<Mutex<Told>>,
}

impl Authority {
    /// With one published video that everybody may see, likers included.
    pub(crate) fn new() -> Self {
        let video = VideoPolicy {
            video_id: VIDEO.to_owned(),
            status: VideoStatus::Published.into(),
            visibility: VideoVisibility::Public.into(),
            author_id: AUTHOR.to_owned(),
            likers_visible: LikersVisible::Everyone.into(),
            count_visible: true,
            version: 1,
        };
        let told = Told {
            video,
            accounts: BTreeMap::new(),
            blocks: BTreeSet::new(),
            follows: BTreeSet::new(),
            away: BTreeSet::new(),
            forgotten: None,
        };
        Self { told: Arc::new(Mutex::new(told)) }
    }

    /// Answers from now on; the endpoint of services that ask it.
    pub(crate) async fn serve(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let server = Server::builder().add_service(PolicyServiceServer::new(self.clone()));
        tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
        endpoint
    }

    pub(crate) fn tell(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets one account.
    pub(crate) fn account(&self, user: &str, change: impl FnOnce(&mut AccountPolicy)) {
        change(self.tell().accounts.entry(user.to_owned()).or_insert_with(|| open(user)));
    }

    /// What it tells, unless this question gets no answer.
    fn asked(&self, question: &str) -> Result<MutexGuard<'_, Told>, Status> {
        let told = self.tell();
        if told.away.contains(question) { Err(Status::unavailable("away")) } else { Ok(told) }
    }
}

fn open(user: &str) -> AccountPolicy {
    AccountPolicy {
        user_id: user.to_owned(),
        state: AccountState::Active.into(),
        listable: true,
        version: 1,
        ..AccountPolicy::default()
    }
}

#[tonic::async_trait]
impl PolicyService for Authority {
    async fn batch_get_video_policies(
        &self,
        request: Request<BatchGetVideoPoliciesRequest>,
    ) -> Result<Response<BatchGetVideoPoliciesResponse>, Status> {
        let told = self.asked("video")?;
        let policy = |id: String| {
            if id == VIDEO {
                return told.video.clone();
            }
            VideoPolicy { video_id: id, status: VideoStatus::NotFound.into(), ..VideoPolicy::default() }
        };
        let policies = request.into_inner().video_ids.into_iter().map(policy).collect();
        Ok(Response::new(BatchGetVideoPoliciesResponse { policies }))
    }

    async fn batch_get_account_policies(
        &self,
        request: Request<BatchGetAccountPoliciesRequest>,
    ) -> Result<Response<BatchGetAccountPoliciesResponse>, Status> {
        let told = self.asked("account")?;
        let ids = request.into_inner().user_ids;
        if ids.len() > 200 {
            return Err(Status::invalid_argument("more than 200"));
        }
        let known = ids.iter().filter(|id| told.forgotten.as_ref() != Some(*id));
        let policies = known.map(|id| told.accounts.get(id).cloned().unwrap_or_else(|| open(id))).collect();
        Ok(Response::new(BatchGetAccountPoliciesResponse { policies, block_set: None }))
    }

    async fn batch_check_pairs(
        &self,
        request: Request<BatchCheckPairsRequest>,
    ) -> Result<Response<BatchCheckPairsResponse>, Status> {
        let told = self.asked("pair")?;
        let BatchCheckPairsRequest { viewer_id: viewer, other_ids } = request.into_inner();
        let pair = |other: String| {
            let (there, back) = ((viewer.clone(), other.clone()), (other.clone(), viewer.clone()));
            Pair {
                friends: told.follows.contains(&there) && told.follows.contains(&back),
                blocked: told.blocks.contains(&there) || told.blocks.contains(&back),
                follows: told.follows.contains(&there),
                other_id: other,
            }
        };
        Ok(Response::new(BatchCheckPairsResponse { pairs: other_ids.into_iter().map(pair).collect() }))
    }

    async fn list_changed_since(
        &self,
        _: Request<ListChangedSinceRequest>,
    ) -> Result<Response<ListChangedSinceResponse>, Status> {
        Ok(Response::new(ListChangedSinceResponse::default()))
    }
}
