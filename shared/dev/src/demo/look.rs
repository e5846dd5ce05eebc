//! Reading back what every part says about the video.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, anyhow};
use likewise_proto::command::v1::like_command_service_client::LikeCommandServiceClient;
use likewise_proto::command::v1::{GetOperationRequest, OperationVerdict, SetLikeRequest, SetLikeResponse};
use likewise_proto::counter::v1::counter_admin_service_client::CounterAdminServiceClient;
use likewise_proto::counter::v1::{DescribeVideoRequest, DescribeVideoResponse};
use likewise_proto::query::v1::like_query_service_client::LikeQueryServiceClient;
use likewise_proto::query::v1::{BatchGetLikesRequest, ListLikersRequest, MyLike};
use likewise_proto::reconciliation::v1::operations_service_client::OperationsServiceClient;
use likewise_proto::reconciliation::v1::{GetLagBoardRequest, GetLagBoardResponse};
use likewise_proto::types::v1::LikeState;
use tonic::Status;

use super::tale::Tale;
use super::{LIN, VIDEO};
use crate::site::{Person, Site, eventually, reason};

/// How long projections may take to follow, on a slow machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// What must be true at the end.
#[derive(Debug)]
pub(crate) struct Expected {
    /// Who likes the video.
    pub(crate) likers: BTreeSet<String>,
}

impl Expected {
    /// The count.
    pub(crate) fn count(&self) -> u64 {
        self.likers.len() as u64
    }
}

/// An error of a call, told as clients see it.
pub(crate) fn failed(what: &str) -> impl Fn(Status) -> anyhow::Error + '_ {
    move |status| anyhow!("{what}: {}", reason(&status))
}

/// LIKED, UNLIKED.
pub(crate) fn state(state: LikeState) -> &'static str {
    state.as_str_name().trim_start_matches("LIKE_STATE_")
}

/// A verdict in words.
pub(crate) fn verdict(verdict: Option<&OperationVerdict>) -> String {
    let Some(verdict) = verdict else { return "no verdict".to_owned() };
    let outcome = verdict.outcome().as_str_name().trim_start_matches("COMMAND_OUTCOME_");
    format!("{outcome} {} v{}", state(verdict.state()), verdict.relation_version)
}

/// An answer in words: the verdict, and the relation now.
pub(crate) fn answer(answer: &SetLikeResponse) -> String {
    let current = answer.current.as_ref();
    let now = current.map_or("nothing".to_owned(), |now| format!("{} v{}", state(now.state()), now.relation_version));
    format!("{}; now {now}", verdict(answer.operation.as_ref()))
}

/// Sets a state.
pub(crate) async fn set(
    person: &Person,
    video: &str,
    desired: LikeState,
    operation: &str,
) -> Result<SetLikeResponse, Status> {
    let message = SetLikeRequest {
        video_id: video.to_owned(),
        desired_state: desired.into(),
        operation_id: operation.to_owned(),
        ..SetLikeRequest::default()
    };
    Ok(LikeCommandServiceClient::new(person.channel.clone()).set_like(person.request(message)).await?.into_inner())
}

/// What became of an operation.
pub(crate) async fn operation(person: &Person, id: &str) -> Result<OperationVerdict, Status> {
    let message = GetOperationRequest { operation_id: id.to_owned() };
    let mut client = LikeCommandServiceClient::new(person.channel.clone());
    let answer = client.get_operation(person.request(message)).await?.into_inner();
    answer.operation.ok_or_else(|| Status::internal("an answer without a verdict"))
}

/// The heart and the number.
pub(crate) async fn page(person: &Person, position: Option<&str>) -> Result<MyLike, Status> {
    let message = BatchGetLikesRequest {
        video_ids: vec![VIDEO.to_owned()],
        position: position.map(str::to_owned),
        ..BatchGetLikesRequest::default()
    };
    let mut client = LikeQueryServiceClient::new(person.channel.clone());
    let likes = client.batch_get_likes(person.request(message)).await?.into_inner().likes;
    likes.into_iter().next().ok_or_else(|| Status::internal("a page without its video"))
}

/// The page once its count is `count`.
pub(crate) async fn page_with(person: &Person, count: u64, position: Option<&str>) -> Result<MyLike> {
    eventually(&format!("the display count becomes {count}"), PATIENCE, || async {
        let like = page(person, position).await.map_err(|status| reason(&status))?;
        let seen = like.count.clone().unwrap_or_default();
        let covers = position.is_none() || seen.covers_position == Some(true);
        if seen.display == Some(count) && covers { Ok(like) } else { Err(format!("{seen:?}")) }
    })
    .await
}

async fn board(viewer: &Person) -> Result<GetLagBoardResponse, Status> {
    let mut client = OperationsServiceClient::new(viewer.channel.clone());
    Ok(client.get_lag_board(viewer.request(GetLagBoardRequest {})).await?.into_inner())
}

/// The board once everything committed is published and consumed.
async fn settled(viewer: &Person) -> Result<GetLagBoardResponse> {
    eventually("every projection has followed", PATIENCE, || async {
        let board = board(viewer).await.map_err(|status| reason(&status))?;
        let is_behind = board.lanes.is_empty()
            || board.lanes.iter().any(|lane| {
                lane.committed_seq.is_none()
                    || lane.published_seq != lane.committed_seq
                    || lane.projections.is_empty()
                    || lane.projections.iter().any(|row| row.next_offset != lane.committed_seq() + 1)
            });
        if is_behind || !board.unanswered.is_empty() { Err(format!("{board:?}")) } else { Ok(board) }
    })
    .await
}

async fn describe(viewer: &Person) -> Result<DescribeVideoResponse> {
    let mut client = CounterAdminServiceClient::new(viewer.channel.clone());
    let message = DescribeVideoRequest { video_id: VIDEO.to_owned() };
    let answer = client.describe_video(viewer.request(message)).await;
    Ok(answer.map_err(failed("taking the count apart"))?.into_inner())
}

async fn likers(person: &Person) -> Result<Vec<String>> {
    let (mut all, mut token) = (Vec::new(), String::new());
    loop {
        let message = ListLikersRequest { video_id: VIDEO.to_owned(), page_size: 100, page_token: token };
        let mut client = LikeQueryServiceClient::new(person.channel.clone());
        let page = client.list_likers(person.request(message)).await.map_err(failed("listing likers"))?.into_inner();
        all.extend(page.likers.into_iter().map(|liker| liker.user_id));
        token = page.next_page_token;
        if token.is_empty() {
            return Ok(all);
        }
    }
}

fn tell_board(tale: &Tale, board: &GetLagBoardResponse) {
    tale.say("lane        committed  published  next offset of each projection");
    for lane in &board.lanes {
        let followers: Vec<String> =
            lane.projections.iter().map(|row| format!("{} {}", row.projection, row.next_offset)).collect();
        let (committed, published) = (lane.committed_seq(), lane.published_seq());
        tale.say(&format!("{:<11} {committed:>9}  {published:>9}  {}", lane.lane, followers.join(", ")));
    }
}

/// The two changes of the story, as the lanes and the counter saw them.
pub(crate) async fn follow(site: &Site, tale: &mut Tale) -> Result<()> {
    tale.chapter("The two changes travel: outbox, stream, projections");
    let viewer = site.viewer(&site.channel()?);
    let board = settled(&viewer).await?;
    tell_board(tale, &board);
    let changed: Vec<u64> = board
        .lanes
        .iter()
        .filter(|lane| lane.lane.starts_with("rel-") && lane.committed_seq() > 0)
        .map(|lane| lane.committed_seq())
        .collect();
    tale.must("one lane carries both changes, at offsets 1 and 2, and no retry; changes per lane", &changed, &vec![2]);
    let parts = describe(&viewer).await?;
    tale.must("like and unlike met in one virtual bucket", &parts.vbuckets.len(), &1);
    if let Some(bucket) = parts.vbuckets.first() {
        let (number, partition) = (bucket.vbucket, &bucket.partition);
        tale.say(&format!("bucket {number} on partition {partition}, version {}", bucket.bucket_version));
    }
    tale.must("the count is back at 0, not below", &(parts.sum, parts.liked_relations), &(0, 0));
    Ok(())
}

/// Everything that can be said about the video agrees.
pub(crate) async fn whole(site: &Site, tale: &mut Tale, expected: &Expected) -> Result<()> {
    tale.chapter("Every part says the same");
    let channel = site.channel()?;
    let (viewer, lin) = (site.viewer(&channel), site.person(&channel, LIN));
    tell_board(tale, &settled(&viewer).await?);
    let parts = describe(&viewer).await?;
    let mut partitions: Vec<&str> = parts.vbuckets.iter().map(|bucket| bucket.partition.as_str()).collect();
    partitions.sort_unstable();
    partitions.dedup();
    let (buckets, shown) = (parts.vbuckets.len(), partitions.join(" and "));
    tale.say(&format!("the hot video is spread over {buckets} virtual buckets on partitions {shown}"));
    tale.must("sum of the virtual buckets", &parts.sum, &expected.count());
    tale.must("liked relations of the projection", &parts.liked_relations, &expected.count());
    let display = page_with(&lin, expected.count(), None).await?.count.unwrap_or_default();
    tale.must("the number that people see", &display.display, &Some(expected.count()));
    let listed = likers(&lin).await?;
    tale.must("people on the list of likers, each once", &listed.len(), &expected.likers.len());
    let listed: BTreeSet<String> = listed.into_iter().collect();
    tale.must("and they are the right ones", &(listed == expected.likers), &true);
    Ok(())
}
