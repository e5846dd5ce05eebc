//! The client of feed and video services.
//!
//! [`LikeSession`](session::LikeSession) is the rule: one user, one video, one command in flight, the last tap wins, and an
//! answer is believed at its version. [`LikeClient`](client::LikeClient) makes the calls, [`Likes`](likes::Likes) holds a
//! session for each relation that was touched. With the feature `consumer`, a service keeps a projection of its own of every
//! relation: its module says how.
//!
//! ```no_run
//! # async fn example(user_token: &str) -> Result<(), Box<dyn std::error::Error>> {
//! use likewise_client::client::{LikeClient, Settings};
//! use likewise_client::likes::Likes;
//! use likewise_client::LikeState;
//!
//! let client = LikeClient::connect(Settings::to("likewise.internal:7400")).await;
//! let likes = Likes::new(client, 100_000, 1_000);
//! likes.tap("lin", user_token, "V9001", LikeState::Liked)?;
//! for shown in likes.view("lin", user_token, &["V9001", "V9002"]).await? {
//!     println!("{} {:?} {:?}", shown.video_id, shown.state, shown.count);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Promises: a command is repeated only with its own operation id, within a deadline and from a budget; nothing of one relation
//! passes a command without a verdict; a heart is never shown below the version that was confirmed here.

pub mod channel;
pub mod client;
#[cfg(feature = "consumer")]
pub mod consumer;
pub mod likes;
pub mod retry;
pub mod session;

pub use likewise_domain::relation::LikeState;
