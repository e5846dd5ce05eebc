//! Whether callers should come, asked of every service and told to probes and to gRPC health.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use tokio_util::sync::CancellationToken;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use super::Service;

/// Longest wait for one check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);
/// How often gRPC health is brought up to date, when ready and when not.
const EVERY_READY: Duration = Duration::from_secs(2);
const EVERY_UNREADY: Duration = Duration::from_millis(200);

/// Tells why a service is not ready, in our words.
pub type ReadyCheck = Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

struct Checked {
    service: &'static str,
    grpc_names: Vec<&'static str>,
    checks: Vec<(&'static str, ReadyCheck)>,
}

/// The checks of all services of a process.
#[derive(Clone)]
pub(super) struct Readiness {
    services: Arc<Vec<Checked>>,
    draining: CancellationToken,
}

impl Readiness {
    pub(super) fn new(services: &[Service], draining: CancellationToken) -> Self {
        let services = services
            .iter()
            .map(|service| Checked {
                service: service.name,
                grpc_names: service.grpc_names.clone(),
                checks: service.ready.clone(),
            })
            .collect();
        Self { services: Arc::new(services), draining }
    }

    /// Everything that is not ready, as `service check: reason`.
    pub(super) async fn problems(&self) -> Vec<String> {
        if self.draining.is_cancelled() {
            return vec!["the process is stopping".to_owned()];
        }
        join_all(self.services.iter().map(problems_of)).await.into_iter().flatten().collect()
    }

    /// Keeps gRPC health up to date until the process drains, then reports NOT_SERVING.
    pub(super) async fn report(self, health: HealthReporter) {
        let mut ready = false;
        loop {
            let draining = self.draining.is_cancelled();
            let mut all_ready = true;
            for checked in self.services.iter() {
                let serving = !draining && problems_of(checked).await.is_empty();
                all_ready &= serving;
                for name in &checked.grpc_names {
                    health.set_service_status(name, status(serving)).await;
                }
            }
            health.set_service_status("", status(all_ready && !draining)).await;
            if draining {
                return;
            }
            if all_ready != ready {
                tracing::info!(ready = all_ready, "readiness changed");
                ready = all_ready;
            }
            let pause = if all_ready { EVERY_READY } else { EVERY_UNREADY };
            let _ = self.draining.run_until_cancelled(tokio::time::sleep(pause)).await;
        }
    }
}

const fn status(serving: bool) -> ServingStatus {
    if serving { ServingStatus::Serving } else { ServingStatus::NotServing }
}

async fn problems_of(checked: &Checked) -> Vec<String> {
    let asked = checked.checks.iter().map(|(name, check)| async move {
        let answer = tokio::time::timeout(CHECK_TIMEOUT, check()).await;
        let problem = answer.unwrap_or_else(|_| Err("no answer in time".to_owned())).err()?;
        Some(format!("{} {name}: {problem}", checked.service))
    });
    join_all(asked).await.into_iter().flatten().collect()
}
