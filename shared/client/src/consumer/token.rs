//! The token of a consumer.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use likewise_kit::auth::MintError;
use likewise_kit::clients::Bearer;
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::metadata::{Ascii, MetadataValue};

use super::Error;

/// How often a file is read again: well within the life of any token.
const READ_EVERY: Duration = Duration::from_secs(30);

/// A service token.
#[derive(Debug, Clone)]
pub enum Token {
    /// A file that somebody keeps fresh; read again every half minute.
    File(PathBuf),
    /// The token itself: the consumer cannot reach the publisher any more when it has expired.
    Text(SecretString),
}

/// The header, as it was read last.
struct Watched(watch::Receiver<MetadataValue<Ascii>>);

impl Bearer for Watched {
    fn header(&self) -> Result<MetadataValue<Ascii>, MintError> {
        Ok(self.0.borrow().clone())
    }
}

impl Token {
    /// Reads the token now, and a file again and again until `stop`.
    pub(super) async fn watched(
        &self,
        stop: &CancellationToken,
        tasks: &TaskTracker,
    ) -> Result<Arc<dyn Bearer>, Error> {
        let (told, latest) = watch::channel(self.read().await?);
        if let Self::File(path) = self {
            let (token, path, stop) = (self.clone(), path.clone(), stop.clone());
            tasks.spawn(async move {
                while stop.run_until_cancelled(tokio::time::sleep(READ_EVERY)).await.is_some() {
                    match token.read().await {
                        Ok(header) => drop(told.send_replace(header)),
                        // The token of before may still be good.
                        Err(error) => tracing::warn!(?path, %error, "the token cannot be read again"),
                    }
                }
            });
        }
        Ok(Arc::new(Watched(latest)))
    }

    async fn read(&self) -> Result<MetadataValue<Ascii>, Error> {
        let text = match self {
            Self::Text(text) => text.clone(),
            Self::File(path) => {
                let read = tokio::fs::read_to_string(path).await;
                read.map_err(|source| Error::Token { path: path.clone(), source })?.into()
            }
        };
        let header: Result<MetadataValue<Ascii>, _> = format!("Bearer {}", text.expose_secret().trim()).parse();
        let mut header = header.map_err(|_| Error::NoToken)?;
        header.set_sensitive(true);
        Ok(header)
    }
}
