//! Tells the publisher how far a consumer is, so that the outbox keeps what may still be asked of it.
//!
//! Consuming never waits for this: a publisher that cannot be told keeps more than it has to, until the registration
//! expires.

use std::sync::Arc;

use likewise_domain::lane::Offset;
use tokio::time::sleep;

use super::run::Run;
use crate::lanes::backoff::Backoff;
use crate::lanes::{Error, Projection, Upstream};

impl<P: Projection> Run<P> {
    /// Registers, which sets the place anew, then reports every so often. Never ends; the owner of the lane drops it.
    pub(super) async fn report(&self) {
        let Some(upstream) = self.runtime.upstream.clone() else { return std::future::pending().await };
        let mut backoff = Backoff::new(&self.runtime.settings);
        let (mut registered, mut told) = (false, String::new());
        loop {
            let next = self.shared.owned_at().await;
            match self.say(&upstream, registered, next).await {
                Ok(known) => {
                    (registered, told) = (known, String::new());
                    backoff.reset();
                    if known {
                        let interval = self.runtime.settings.report_interval();
                        sleep(interval.mul_f64(0.75 + rand::random::<f64>() / 2.0)).await;
                    }
                }
                Err(error) => {
                    let (projection, lane, error) = (&self.name, self.lane, error.chain());
                    if error != told {
                        tracing::warn!(projection, %lane, error, "the publisher was not told, trying again");
                        told = error;
                    }
                    backoff.pause().await;
                }
            }
        }
    }

    async fn say(&self, upstream: &Arc<dyn Upstream>, registered: bool, next: Offset) -> Result<bool, Error> {
        if registered {
            return upstream.report(self.lane, &self.name, next).await;
        }
        upstream.register(self.lane, &self.name, next, self.runtime.settings.consumer_ttl()).await?;
        Ok(true)
    }
}
