//! Scans of whole shards, and where shards stand.

use futures::future::join_all;
use likewise_domain::lane::Offset;
use likewise_kit::errors;
use likewise_proto::convert::{hidden_axis, like_state, timestamp};
use likewise_proto::facts::v1::scan_relations_response::Part;
use likewise_proto::facts::v1::{
    GetShardWatermarksResponse, ScanHeader, ScanRelationsResponse, ScanRows, ScanTrailer, ScannedRelation,
    ShardWatermark,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Response, Status};

use super::{Facts, RETRY_AFTER, failed, within};
use crate::app::shards::Shard;
use crate::store::scan::{self, Gone, Scanned, Sink, Watermark};
use crate::store::{Error, shard};

/// Parts that wait for a slow reader.
const AHEAD: usize = 2;

/// What the caller reads.
pub(crate) type Scan = ReceiverStream<Result<ScanRelationsResponse, Status>>;

/// Sends a scan to its caller.
struct Outgoing {
    shard: u16,
    rows: u64,
    parts: mpsc::Sender<Result<ScanRelationsResponse, Status>>,
}

impl Outgoing {
    async fn send(&self, part: Part) -> Result<(), Gone> {
        self.parts.send(Ok(ScanRelationsResponse { part: Some(part) })).await.map_err(|_| Gone)
    }
}

impl Sink for Outgoing {
    async fn begin(&mut self, watermark: Watermark) -> Result<(), Gone> {
        let header = ScanHeader {
            shard: self.shard.into(),
            epoch: watermark.epoch.into(),
            incarnation: watermark.incarnation.to_string(),
            watermark_seq: watermark.committed,
            taken_at: Some(timestamp(watermark.now)),
        };
        self.send(Part::Header(header)).await
    }

    async fn rows(&mut self, rows: Vec<Scanned>) -> Result<(), Gone> {
        self.rows += rows.len() as u64;
        let relations = rows.iter().map(scanned).collect();
        self.send(Part::Rows(ScanRows { relations })).await
    }
}

fn scanned(row: &Scanned) -> ScannedRelation {
    let Offset { epoch: state_epoch, seq: state_seq } = row.state_at;
    let Offset { epoch: hidden_epoch, seq: hidden_seq } = row.hidden_at;
    ScannedRelation {
        user_id: row.user_id.to_string(),
        video_id: row.video_id.to_string(),
        state: like_state(row.state).into(),
        relation_version: row.version,
        state_changed_at: Some(timestamp(row.state_changed_at)),
        hidden: Some(hidden_axis(row.hidden)),
        state_seq,
        state_epoch: state_epoch.into(),
        hidden_seq,
        hidden_epoch: hidden_epoch.into(),
    }
}

impl Facts {
    /// Begins a scan on a connection of its own.
    pub(super) async fn begin_scan(&self, number: u32) -> Result<Response<Scan>, Status> {
        let shard = self.numbered(number)?;
        let number = shard.number;
        let room = self.scans.clone().try_acquire_owned().map_err(|_| errors::overloaded(RETRY_AFTER))?;
        let open = async {
            let server = shard::server(&self.settings, number)?;
            Ok(self.servers.dedicated(server, &shard::schema(number)).await?)
        };
        let client = within(self.settings.read_timeout(), open).await?;
        let (parts, outgoing) = mpsc::channel(AHEAD);
        let mut sink = Outgoing { shard: number, rows: 0, parts };
        tokio::spawn(async move {
            let _room = room;
            let result: Result<(), Error> = scan::scan(client, &mut sink).await;
            let _ = match result {
                Ok(()) => sink.send(Part::Trailer(ScanTrailer { rows: sink.rows })).await,
                Err(error) => sink.parts.send(Err(failed(&error))).await.map_err(|_| Gone),
            };
        });
        Ok(Response::new(ReceiverStream::new(outgoing)))
    }

    pub(super) async fn all_watermarks(&self) -> GetShardWatermarksResponse {
        let shards = join_all(self.shards.all().iter().map(|shard| self.shard_watermark(shard))).await;
        GetShardWatermarksResponse { shards }
    }

    async fn shard_watermark(&self, shard: &Shard) -> ShardWatermark {
        let number = u32::from(shard.number);
        let found = within(self.settings.read_timeout(), scan::watermark(&shard.pool)).await;
        found.map_or_else(
            |_| ShardWatermark { shard: number, status: "AWAY".to_owned(), ..ShardWatermark::default() },
            |found| ShardWatermark {
                shard: number,
                epoch: found.epoch.into(),
                incarnation: found.incarnation.to_string(),
                committed_seq: found.committed,
                status: found.status,
                barrier_until: found.barrier_until.map(timestamp),
            },
        )
    }
}
