//! `CountService` for other services, `CounterAdminService` for operators. Wire types stop here.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use likewise_domain::id::VideoId;
use likewise_kit::auth::{self, Role};
use likewise_kit::errors;
use likewise_proto::convert::timestamp;
use likewise_proto::counter::v1 as wire;
use likewise_proto::counter::v1::count_service_server::CountService;
use likewise_proto::counter::v1::counter_admin_service_server::CounterAdminService;
use likewise_proto::types::v1::LaneOffset;
use time::OffsetDateTime;
use tonic::{Request, Response, Status};

use crate::app::counts::{Counts, OwnedBucket, Progress};
use crate::display::{DisplayRow, snapshot_id};
use crate::store::Error;

/// Most ids of one `BatchGetCounts`.
const VIDEOS_MAX: usize = 200;
/// When to try again while PostgreSQL is away.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Both services over one set of counts.
#[derive(Clone)]
pub struct Grpc {
    counts: Arc<Counts>,
}

impl Grpc {
    /// Serves these counts.
    #[must_use]
    pub const fn new(counts: Arc<Counts>) -> Self {
        Self { counts }
    }
}

#[tonic::async_trait]
impl CountService for Grpc {
    async fn batch_get_counts(
        &self,
        request: Request<wire::BatchGetCountsRequest>,
    ) -> Result<Response<wire::BatchGetCountsResponse>, Status> {
        auth::service(&request)?;
        let ids = request.into_inner().video_ids;
        let videos = parse_videos(&ids)?;
        let asked_at = OffsetDateTime::now_utc();
        let (rows, progress) = self.counts.rows(&videos).await.map_err(|error| told(&error))?;
        let counts = videos
            .iter()
            .zip(rows)
            .map(|(video, row)| match row {
                Some(row) => display_count(&row, &progress),
                None => absent(video, &progress, asked_at),
            })
            .collect();
        Ok(Response::new(wire::BatchGetCountsResponse { counts, progress: Some(wire_progress(&progress)) }))
    }

    async fn get_progress(
        &self,
        request: Request<wire::GetProgressRequest>,
    ) -> Result<Response<wire::GetProgressResponse>, Status> {
        auth::service_or_operator(&request, Role::Viewer)?;
        let progress = self.counts.progress().await.map_err(|error| told(&error))?;
        Ok(Response::new(wire::GetProgressResponse { progress: Some(wire_progress(&progress)) }))
    }
}

#[tonic::async_trait]
impl CounterAdminService for Grpc {
    async fn describe_video(
        &self,
        request: Request<wire::DescribeVideoRequest>,
    ) -> Result<Response<wire::DescribeVideoResponse>, Status> {
        auth::operator(&request, Role::Viewer)?;
        let id = request.into_inner().video_id;
        let video = VideoId::parse(&id).map_err(|error| errors::invalid_field("video_id", error.to_string()))?;
        let (buckets, row, progress) = self.counts.describe(&video).await.map_err(|error| told(&error))?;
        Ok(Response::new(wire::DescribeVideoResponse {
            sum: buckets.iter().map(|owned| count(owned.bucket.parts.raw)).sum(),
            liked_relations: buckets.iter().map(|owned| owned.bucket.liked_relations).sum(),
            vbuckets: buckets.into_iter().map(vbucket_count).collect(),
            display: row.map(|row| display_count(&row, &progress)),
            progress: Some(wire_progress(&progress)),
        }))
    }

    async fn describe_generation(
        &self,
        request: Request<wire::DescribeGenerationRequest>,
    ) -> Result<Response<wire::DescribeGenerationResponse>, Status> {
        auth::operator(&request, Role::Viewer)?;
        let live = self.counts.live();
        live.refresh().await.map_err(|error| told(&error))?;
        let (contract, routes) = (live.space().contract(), live.routes());
        let owned: HashMap<String, u32> = routes.partitions().iter().cloned().zip(routes.owned_counts()).collect();
        Ok(Response::new(wire::DescribeGenerationResponse {
            generation: live.generation().unsigned_abs().into(),
            bucket_space: Some(wire::BucketSpace {
                version: contract.version.unsigned_abs(),
                hash_algorithm: contract.hash_algorithm.clone(),
                hash_seed: contract.hash_seed,
                key_encoding: contract.key_encoding.clone(),
                vbuckets: contract.vbuckets,
            }),
            manifest_id: routes.manifest().unsigned_abs(),
            vbuckets_per_partition: owned,
        }))
    }
}

fn parse_videos(ids: &[String]) -> Result<Vec<VideoId>, Status> {
    if ids.is_empty() || ids.len() > VIDEOS_MAX {
        return Err(errors::invalid_field("video_ids", format!("must hold 1..{VIDEOS_MAX} ids")));
    }
    let mut faults = Vec::new();
    let mut videos = Vec::with_capacity(ids.len());
    for (index, id) in ids.iter().enumerate() {
        match VideoId::parse(id) {
            Ok(video) => videos.push(video),
            Err(error) => faults.push((format!("video_ids[{index}]"), error.to_string())),
        }
    }
    if faults.is_empty() { Ok(videos) } else { Err(errors::invalid_fields(faults)) }
}

/// Logged once, here; the caller gets our words.
fn told(error: &Error) -> Status {
    if error.is_transient() {
        tracing::warn!(error = error.chain(), "counts cannot be read");
        return errors::unavailable("counter database", RETRY_AFTER);
    }
    tracing::error!(error = error.chain(), "counts cannot be read");
    errors::internal()
}

/// Stored counts are checked not to be negative.
fn count(stored: i64) -> u64 {
    u64::try_from(stored).unwrap_or(0)
}

fn display_count(row: &DisplayRow, progress: &Progress) -> wire::DisplayCount {
    wire::DisplayCount {
        video_id: row.video.as_str().to_owned(),
        raw: count(row.parts.raw),
        risk_hidden: count(row.parts.risk_hidden),
        policy_hidden: count(row.parts.policy_hidden),
        display: count(row.parts.display()),
        generated_at: Some(timestamp(row.generated_at)),
        snapshot_id: snapshot_id(progress.generation, row.pass),
        approximate: row.parts.approximate || progress.incomplete,
    }
}

/// A video without a row: nobody's like of it is covered by the progress, so it has none.
fn absent(video: &VideoId, progress: &Progress, at: OffsetDateTime) -> wire::DisplayCount {
    wire::DisplayCount {
        video_id: video.as_str().to_owned(),
        generated_at: Some(timestamp(at)),
        snapshot_id: snapshot_id(progress.generation, 0),
        approximate: progress.incomplete,
        ..wire::DisplayCount::default()
    }
}

fn wire_progress(progress: &Progress) -> wire::Progress {
    let offset = |(lane, next): (&str, likewise_domain::lane::Offset)| LaneOffset {
        lane: lane.to_owned(),
        epoch: next.epoch.into(),
        seq: next.seq,
    };
    wire::Progress {
        generation: progress.generation.unsigned_abs().into(),
        pass: progress.reached.pass.unsigned_abs(),
        next_offsets: progress.reached.vector.iter().map(offset).collect(),
        covered_until: progress.covered_until.map(timestamp),
        incomplete: progress.incomplete,
    }
}

fn vbucket_count(owned: OwnedBucket) -> wire::VbucketCount {
    let bucket = owned.bucket;
    wire::VbucketCount {
        vbucket: bucket.vbucket,
        partition: owned.partition,
        route_epoch: owned.route_epoch,
        active_count: count(bucket.parts.raw),
        risk_hidden_count: count(bucket.parts.risk_hidden),
        policy_hidden_count: count(bucket.parts.policy_hidden),
        bucket_version: bucket.version,
        updated_at: bucket.updated_at.map(timestamp),
    }
}
