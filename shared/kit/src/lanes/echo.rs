//! A word sent through the broker to oneself: while it comes back, what others publish comes too.
//!
//! A core subscription of NATS tells nobody what it missed. A cache that forgets by events has to know, or it believes what
//! is no longer so until its age limit.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use async_nats::connection::State;
use async_nats::{Client, Subscriber};
use futures::StreamExt as _;
use tokio::time::{Interval, MissedTickBehavior};

pub use async_nats::SubscribeError;

const EVERY: Duration = Duration::from_millis(250);
/// Without an echo for so long, messages may be missed.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// What changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    /// Messages may have been missed since a little more than two seconds ago.
    Lost,
    /// Every message from now on is heard.
    Found,
}

/// Watches whether messages come through, for subscriptions made before it on the same client. Begins out of touch.
pub struct Echo {
    nats: Client,
    subject: String,
    echoes: Subscriber,
    tick: Interval,
    heart: Heart,
}

/// Which echoes count.
#[derive(Debug)]
struct Heart {
    sent: u64,
    /// Earlier ones may have come back while messages were missed.
    counts_from: u64,
    heard_at: Instant,
    is_in_touch: bool,
    connects: u64,
}

impl Heart {
    fn new(now: Instant) -> Self {
        Self { sent: 0, counts_from: 1, heard_at: now, is_in_touch: false, connects: 0 }
    }

    /// Whether touch is lost by what the connection looks like now.
    fn looks(&mut self, now: Instant, connects: u64, is_connected: bool) -> bool {
        let same = connects == self.connects;
        self.connects = connects;
        let silent = now.saturating_duration_since(self.heard_at) > SILENCE_MAX;
        if same && is_connected && !(self.is_in_touch && silent) {
            return false;
        }
        self.counts_from = self.sent + 1;
        std::mem::take(&mut self.is_in_touch)
    }

    /// Whether touch is found by this echo.
    fn hears(&mut self, now: Instant, number: u64) -> bool {
        if number < self.counts_from {
            return false;
        }
        self.heard_at = now;
        !std::mem::replace(&mut self.is_in_touch, true)
    }

    fn next(&mut self) -> u64 {
        self.sent += 1;
        self.sent
    }
}

impl Echo {
    /// Listens for its own words.
    ///
    /// # Errors
    /// When the client is closed.
    pub async fn listen(nats: &Client) -> Result<Self, SubscribeError> {
        let subject = nats.new_inbox();
        let echoes = nats.subscribe(subject.clone()).await?;
        let mut tick = tokio::time::interval(EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self { nats: nats.clone(), subject, echoes, tick, heart: Heart::new(Instant::now()) })
    }

    /// Waits until touch is lost or found; `None` when there is nothing to listen to any more. Nothing is lost when the
    /// call is given up.
    pub async fn change(&mut self) -> Option<Touch> {
        loop {
            tokio::select! {
                heard = self.echoes.next() => {
                    let number = <[u8; 8]>::try_from(heard?.payload.as_ref()).map(u64::from_be_bytes);
                    if number.is_ok_and(|number| self.heart.hears(Instant::now(), number)) {
                        return Some(Touch::Found);
                    }
                }
                _ = self.tick.tick() => {
                    let connects = self.nats.statistics().connects.load(Ordering::Relaxed);
                    let is_connected = self.nats.connection_state() == State::Connected;
                    if self.heart.looks(Instant::now(), connects, is_connected) {
                        return Some(Touch::Lost);
                    }
                    if is_connected {
                        self.speak().await;
                    }
                }
            }
        }
    }

    /// A connection that takes nothing any more must not hold up whoever asks whether it does.
    async fn speak(&mut self) {
        let word = self.heart.next().to_be_bytes().to_vec();
        let _ = tokio::time::timeout(EVERY, self.nats.publish(self.subject.clone(), word.into())).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_of_before_a_loss_does_not_show_that_messages_come() {
        let now = Instant::now();
        let mut heart = Heart::new(now);
        assert!(!heart.looks(now, 1, true), "out of touch at first");
        let first = heart.next();
        assert!(heart.hears(now, first));
        assert!(!heart.hears(now, first), "told once");
        let late = heart.next();
        assert!(heart.looks(now, 2, true), "connected anew");
        assert!(!heart.looks(now, 2, true), "told once");
        assert!(!heart.hears(now, late));
        let next = heart.next();
        assert!(heart.hears(now, next));
        assert!(heart.looks(now, 2, false), "not connected");
    }

    #[test]
    fn silence_is_a_loss() {
        let now = Instant::now();
        let mut heart = Heart::new(now);
        let first = heart.next();
        assert!(heart.hears(now, first));
        assert!(!heart.looks(now + SILENCE_MAX, 0, true));
        let late = now + SILENCE_MAX + EVERY;
        assert!(heart.looks(late, 0, true));
        let second = heart.next();
        assert!(heart.hears(late, second));
    }
}
