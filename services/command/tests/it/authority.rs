//! Stands for the authority: tells the policies that a test sets, and can be away.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use likewise_proto::policy::v1::policy_service_server::{PolicyService, PolicyServiceServer};
use likewise_proto::policy::v1::{
    AccountPolicy, AccountState, BatchCheckPairsRequest, BatchCheckPairsResponse, BatchGetAccountPoliciesRequest,
    BatchGetAccountPoliciesResponse, BatchGetVideoPoliciesRequest, BatchGetVideoPoliciesResponse, BlockSet,
    ListChangedSinceRequest, ListChangedSinceResponse, Pair, VideoPolicy, VideoStatus, VideoVisibility,
};
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// The author of every video here.
pub const AUTHOR: &str = "ava";

#[derive(Default)]
struct State {
    videos: Mutex<HashMap<String, VideoPolicy>>,
    blocked: Mutex<Vec<String>>,
    friends: Mutex<Vec<String>>,
    changed: Mutex<Vec<AccountPolicy>>,
    away: AtomicBool,
    asked: AtomicUsize,
}

/// The authority. Clones share what it tells.
#[derive(Clone, Default)]
pub struct Authority {
    state: Arc<State>,
}

impl Authority {
    /// Answers from now on; the endpoint of services that ask it.
    pub async fn serve(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let server = Server::builder().add_service(PolicyServiceServer::new(self.clone()));
        tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
        endpoint
    }

    /// An account has another state, and no event tells it.
    pub fn account(&self, user: &str, state: AccountState, version: u64) {
        let policy =
            AccountPolicy { user_id: user.to_owned(), state: state.into(), version, ..AccountPolicy::default() };
        self.state.changed.lock().expect("whole").push(policy);
    }

    /// A published video that everybody may see.
    pub fn publish(&self, video: &str) {
        self.tell(video, VideoStatus::Published, VideoVisibility::Public);
    }

    pub fn tell(&self, video: &str, status: VideoStatus, visibility: VideoVisibility) {
        let mut videos = self.state.videos.lock().expect("whole");
        let version = videos.get(video).map_or(1, |policy| policy.version + 1);
        let policy = VideoPolicy {
            video_id: video.to_owned(),
            status: status.into(),
            visibility: visibility.into(),
            author_id: AUTHOR.to_owned(),
            count_visible: true,
            version,
            ..VideoPolicy::default()
        };
        videos.insert(video.to_owned(), policy);
    }

    pub fn block(&self, user: &str) {
        self.state.blocked.lock().expect("whole").push(user.to_owned());
    }

    pub fn befriend(&self, user: &str) {
        self.state.friends.lock().expect("whole").push(user.to_owned());
    }

    pub fn go_away(&self) {
        self.state.away.store(true, Ordering::SeqCst);
    }

    /// Calls so far.
    pub fn asked(&self) -> usize {
        self.state.asked.load(Ordering::SeqCst)
    }

    fn count(&self) -> Result<(), Status> {
        self.state.asked.fetch_add(1, Ordering::SeqCst);
        if self.state.away.load(Ordering::SeqCst) { Err(Status::unavailable("away")) } else { Ok(()) }
    }

    fn is_in(list: &Mutex<Vec<String>>, user: &str) -> bool {
        list.lock().expect("whole").iter().any(|one| one == user)
    }
}

#[tonic::async_trait]
impl PolicyService for Authority {
    async fn batch_get_video_policies(
        &self,
        request: Request<BatchGetVideoPoliciesRequest>,
    ) -> Result<Response<BatchGetVideoPoliciesResponse>, Status> {
        self.count()?;
        let videos = self.state.videos.lock().expect("whole");
        let missing = |id: &String| VideoPolicy {
            video_id: id.clone(),
            status: VideoStatus::NotFound.into(),
            ..VideoPolicy::default()
        };
        let wanted = request.into_inner().video_ids;
        let policies = wanted.iter().map(|id| videos.get(id).cloned().unwrap_or_else(|| missing(id))).collect();
        Ok(Response::new(BatchGetVideoPoliciesResponse { policies }))
    }

    async fn batch_get_account_policies(
        &self,
        request: Request<BatchGetAccountPoliciesRequest>,
    ) -> Result<Response<BatchGetAccountPoliciesResponse>, Status> {
        self.count()?;
        let message = request.into_inner();
        let account = |user_id: String| AccountPolicy {
            user_id,
            state: AccountState::Active.into(),
            listable: true,
            version: 1,
            ..AccountPolicy::default()
        };
        // Block sets go both ways.
        let block_set = message.block_set_of.map(|user_id| {
            let blocked = self.state.blocked.lock().expect("whole").clone();
            let others = match user_id.as_str() {
                AUTHOR => blocked,
                user if blocked.iter().any(|one| one == user) => vec![AUTHOR.to_owned()],
                _ => Vec::new(),
            };
            BlockSet { user_id, others, truncated: false, version: 1 }
        });
        let policies = message.user_ids.into_iter().map(account).collect();
        Ok(Response::new(BatchGetAccountPoliciesResponse { policies, block_set }))
    }

    async fn batch_check_pairs(
        &self,
        request: Request<BatchCheckPairsRequest>,
    ) -> Result<Response<BatchCheckPairsResponse>, Status> {
        self.count()?;
        let message = request.into_inner();
        let pair = |other_id: String| Pair {
            other_id,
            friends: Self::is_in(&self.state.friends, &message.viewer_id),
            blocked: Self::is_in(&self.state.blocked, &message.viewer_id),
            follows: false,
        };
        let pairs = message.other_ids.iter().cloned().map(pair).collect();
        Ok(Response::new(BatchCheckPairsResponse { pairs }))
    }

    async fn list_changed_since(
        &self,
        request: Request<ListChangedSinceRequest>,
    ) -> Result<Response<ListChangedSinceResponse>, Status> {
        self.count()?;
        let changed = self.state.changed.lock().expect("whole");
        let seen: usize = request.into_inner().cursor.parse().unwrap_or(0);
        let accounts = changed[seen.min(changed.len())..].to_vec();
        let next_cursor = changed.len().to_string();
        Ok(Response::new(ListChangedSinceResponse { accounts, videos: Vec::new(), next_cursor }))
    }
}
