//! One `LaneService` for all lanes of a process.

use std::sync::Arc;

use likewise_proto::lanes::v1::lane_service_server::LaneService;
use likewise_proto::lanes::v1::{GetWatermarksRequest, GetWatermarksResponse};
use tonic::{Request, Response, Status};

use crate::auth::{self, Role};
use crate::lanes::WatermarkSource;

/// Answers for every source of the process.
pub(super) struct Lanes {
    pub(super) sources: Vec<Arc<dyn WatermarkSource>>,
}

#[tonic::async_trait]
impl LaneService for Lanes {
    async fn get_watermarks(
        &self,
        request: Request<GetWatermarksRequest>,
    ) -> Result<Response<GetWatermarksResponse>, Status> {
        auth::service_or_operator(&request, Role::Viewer)?;
        let lanes = futures::future::join_all(self.sources.iter().map(|source| source.lanes())).await;
        let consumers = futures::future::join_all(self.sources.iter().map(|source| source.consumers())).await;
        Ok(Response::new(GetWatermarksResponse {
            lanes: lanes.into_iter().flatten().collect(),
            consumers: consumers.into_iter().flatten().collect(),
        }))
    }
}
