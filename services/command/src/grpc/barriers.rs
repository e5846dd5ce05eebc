//! Write barriers over several shards: all or none.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use likewise_kit::errors;
use likewise_proto::convert::timestamp;
use likewise_proto::facts::v1::{
    AcquireWriteBarrierRequest, AcquireWriteBarrierResponse, BarrierProof, BarrierShard, ProveWriteBarrierRequest,
    ProveWriteBarrierResponse, ReleaseWriteBarrierRequest, ReleaseWriteBarrierResponse,
};
use tonic::{Code, Status};
use uuid::Uuid;

use super::{Facts, Faults, within};
use crate::app::shards::Shard;
use crate::store::barrier::{self, Barrier};

const REASON_BYTES_MAX: usize = 500;

fn wire(shard: &Shard, barrier: &Barrier) -> BarrierShard {
    BarrierShard {
        shard: shard.number.into(),
        epoch: barrier.at.epoch.into(),
        committed_seq: barrier.at.seq,
        until: barrier.until.map(timestamp),
    }
}

fn token(text: &str) -> Result<Uuid, Status> {
    Uuid::parse_str(text).map_err(|_| errors::invalid_field("token", "must be the token of a barrier"))
}

impl Facts {
    /// The shards named, or all.
    fn named(&self, numbers: &[u32]) -> Result<Vec<&Arc<Shard>>, Status> {
        if numbers.is_empty() {
            return Ok(self.shards.all().iter().collect());
        }
        let mut numbers = numbers.to_vec();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.into_iter().map(|number| self.numbered(number)).collect()
    }

    fn ttl(&self, request: &AcquireWriteBarrierRequest, faults: &mut Faults) -> Duration {
        let most = Duration::from_millis(self.settings.barrier_ttl_ms_max);
        let asked = request.ttl.and_then(|ttl| Duration::try_from(ttl).ok());
        let asked = asked.filter(|ttl| (Duration::from_millis(1)..=most).contains(ttl));
        if asked.is_none() {
            faults.add("ttl", format!("must be 1 ms..{} ms", most.as_millis()));
        }
        asked.unwrap_or_default()
    }

    pub(super) async fn acquire(
        &self,
        who: &str,
        request: AcquireWriteBarrierRequest,
    ) -> Result<AcquireWriteBarrierResponse, Status> {
        let mut faults = Faults::default();
        let ttl = self.ttl(&request, &mut faults);
        let reason = request.reason.as_str();
        if reason.is_empty() || reason.len() > REASON_BYTES_MAX || reason.contains('\0') {
            faults.add("reason", format!("must have 1..{REASON_BYTES_MAX} bytes and no NUL character"));
        }
        if !faults.0.is_empty() {
            return Err(faults.refuse());
        }
        let shards = self.named(&request.shards)?;
        let token = Uuid::new_v4();
        let limit = self.settings.read_timeout();
        let granted = join_all(shards.iter().map(|shard| async {
            within(limit, barrier::acquire(&shard.pool, shard.number, token, ttl, who, reason)).await
        }));
        let granted: Result<Option<Vec<Barrier>>, Status> = granted.await.into_iter().collect();
        let held = match granted {
            Ok(Some(barriers)) => {
                tracing::info!(%token, who, reason, shards = shards.len(), "a write barrier stands");
                let shards = shards.iter().zip(&barriers).map(|(shard, barrier)| wire(shard, barrier)).collect();
                return Ok(AcquireWriteBarrierResponse { token: token.to_string(), shards });
            }
            Ok(None) => {
                let message = "another barrier stands, or a shard does not serve";
                errors::refused(Code::FailedPrecondition, "BARRIER_HELD", message)
            }
            Err(status) => status,
        };
        // All or none. What cannot be released here lapses by itself.
        self.release_in(&shards, token, who).await;
        Err(held)
    }

    pub(super) async fn prove(
        &self,
        who: &str,
        request: ProveWriteBarrierRequest,
    ) -> Result<ProveWriteBarrierResponse, Status> {
        let token = token(&request.token)?;
        let shards = self.named(&request.shards)?;
        let limit = self.settings.read_timeout();
        let proofs = join_all(shards.iter().map(|shard| async {
            let proof = within(limit, barrier::prove(&shard.pool, shard.number, token, who)).await?;
            Ok(BarrierProof {
                shard: Some(wire(shard, &proof.barrier)),
                holds: proof.problem.is_none(),
                problem: proof.problem.unwrap_or_default(),
            })
        }));
        let shards = proofs.await.into_iter().collect::<Result<Vec<_>, Status>>()?;
        Ok(ProveWriteBarrierResponse { holds: shards.iter().all(|proof| proof.holds), shards })
    }

    pub(super) async fn release(
        &self,
        who: &str,
        request: ReleaseWriteBarrierRequest,
    ) -> Result<ReleaseWriteBarrierResponse, Status> {
        let token = token(&request.token)?;
        let shards = self.named(&request.shards)?;
        Ok(ReleaseWriteBarrierResponse { released: self.release_in(&shards, token, who).await })
    }

    /// Shards where the barrier still stood. One that does not answer lets it lapse.
    async fn release_in(&self, shards: &[&Arc<Shard>], token: Uuid, who: &str) -> Vec<u32> {
        let limit = self.settings.read_timeout();
        let released = join_all(shards.iter().map(|shard| async {
            let stood = within(limit, barrier::release(&shard.pool, shard.number, token, who)).await;
            stood.is_ok_and(|stood| stood).then_some(u32::from(shard.number))
        }));
        released.await.into_iter().flatten().collect()
    }
}
