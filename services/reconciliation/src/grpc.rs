//! `OperationsService`: what operators see.

use likewise_kit::auth::{self, Role};
use likewise_proto::convert::timestamp;
use likewise_proto::lanes::v1::LaneEpoch;
use likewise_proto::reconciliation::v1::operations_service_server::OperationsService;
use likewise_proto::reconciliation::v1::{GetLagBoardRequest, GetLagBoardResponse, LaneRow, ProjectionRow};
use time::OffsetDateTime;
use tonic::{Request, Response, Status};

use crate::board::{self, Consumed, Epoch, Row};
use crate::clients::Fleet;

/// The door.
pub struct Door {
    /// Whom to ask.
    pub fleet: Fleet,
}

#[tonic::async_trait]
impl OperationsService for Door {
    async fn get_lag_board(
        &self,
        request: Request<GetLagBoardRequest>,
    ) -> Result<Response<GetLagBoardResponse>, Status> {
        auth::operator(&request, Role::Viewer)?;
        let heard = self.fleet.ask().await;
        let lanes = board::merge(heard.published, heard.consumed);
        Ok(Response::new(GetLagBoardResponse {
            lanes: lanes.into_iter().map(lane).collect(),
            unanswered: heard.unanswered,
            as_of: Some(timestamp(OffsetDateTime::now_utc())),
        }))
    }
}

fn lane(row: Row) -> LaneRow {
    let projections = row.projections.into_iter().map(projection).collect();
    let Some(published) = row.published else {
        let last_error = "its publisher did not answer".to_owned();
        return LaneRow { lane: row.lane, last_error, projections, ..LaneRow::default() };
    };
    LaneRow {
        lane: row.lane,
        epoch: published.epoch,
        committed_seq: Some(published.committed_seq),
        published_seq: Some(published.published_seq),
        oldest_unpublished_at: published.oldest_unpublished_at.map(timestamp),
        last_error: published.last_error,
        projections,
        status: published.status,
        epochs: published.epochs.iter().map(epoch).collect(),
    }
}

fn epoch(begun: &Epoch) -> LaneEpoch {
    LaneEpoch {
        epoch: begun.epoch,
        first_seq: begun.first_seq,
        began_at: begun.began_at.map(timestamp),
        served_at: begun.served_at.map(timestamp),
        lost: begun.lost,
        restated: begun.restated,
    }
}

fn projection((consumer, lag): (Consumed, Option<u64>)) -> ProjectionRow {
    ProjectionRow {
        projection: consumer.projection,
        next_offset: consumer.next_offset,
        lag,
        status: consumer.status,
        last_error: consumer.last_error,
        quarantined: consumer.quarantined,
        updated_at: consumer.updated_at.map(timestamp),
    }
}
