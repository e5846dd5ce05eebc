//! One user and one video, as the caller's side sees them: a pure state machine.
//!
//! Promises: one command is in flight; taps only replace what the user wants; a command without a verdict is sent again with
//! the same operation id before anything else; what the service tells is taken over only at or above the version that is
//! confirmed already. So the last tap wins on the user's own screen, and what others did on other devices is not undone by a
//! late answer.
//!
//! Never: toggles, counts, or forgets an undecided command.

use std::time::Duration;

use likewise_domain::relation::LikeState;

/// A relation as the service told it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// State.
    pub state: LikeState,
    /// Version; 0 for a relation that was never liked.
    pub version: u64,
}

/// What to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Drawn once per intent, kept until it has a verdict.
    pub operation_id: String,
    /// The state asked for.
    pub desired_state: LikeState,
    /// The version the intent is based on, if any is known.
    pub base_version: Option<u64>,
}

/// What the service made of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Applied, or there was nothing to change.
    Settled {
        /// The relation now.
        current: Known,
        /// Position of its last change, for counts.
        position: String,
    },
    /// Somebody else changed the relation first.
    Stale {
        /// The relation now.
        current: Known,
    },
    /// The relation changed too often.
    RateLimited {
        /// The relation now.
        current: Known,
        /// When to try again, with a new id.
        retry_after: Duration,
    },
    /// The id tells a time outside the accepted window: the intent needs a new one.
    Expired,
    /// The service will not do it.
    Refused {
        /// Stable reason.
        reason: String,
        /// The relation now, where the service told it.
        current: Option<Known>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Flight {
    command: Command,
    /// Out, and neither answered nor lost.
    is_out: bool,
    /// It was lost before: the service may have decided it.
    may_be_decided: bool,
}

/// What a session does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Send this, then tell the session what came of it.
    Send(Command),
    /// A command is out.
    Waiting,
    /// Nothing before so much time has passed; then [`LikeSession::rested`].
    Rest(Duration),
    /// What the user wants is what the service has, as far as is known.
    Settled,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LikeSession {
    confirmed: Option<Known>,
    target: LikeState,
    /// The user tapped and nothing has been confirmed yet: whatever they want has to be sent.
    is_open: bool,
    flight: Option<Flight>,
    rest: Option<Duration>,
    refusal: Option<String>,
    /// State that the numbers shown include, and the change that they may lack.
    counted: LikeState,
    position: Option<String>,
    /// The last number that held all the user did.
    base: Option<u64>,
}

impl LikeSession {
    /// A session that begins with what was read, or with nothing known.
    #[must_use]
    pub fn new(known: Option<Known>) -> Self {
        let state = known.map_or(LikeState::Unliked, |known| known.state);
        Self {
            confirmed: known,
            target: state,
            is_open: false,
            flight: None,
            rest: None,
            refusal: None,
            counted: state,
            position: None,
            base: None,
        }
    }

    /// The user wants this now.
    pub fn tap(&mut self, state: LikeState) {
        self.target = state;
        self.is_open = self.confirmed.is_none();
        self.refusal = None;
    }

    /// What to do now; `draw` draws an operation id when a new intent is sent.
    pub fn next(&mut self, draw: impl FnOnce() -> String) -> Next {
        if let Some(flight) = &mut self.flight {
            if flight.is_out {
                return Next::Waiting;
            }
            flight.is_out = true;
            return Next::Send(flight.command.clone());
        }
        if self.is_settled() {
            return Next::Settled;
        }
        if let Some(rest) = self.rest {
            return Next::Rest(rest);
        }
        let command = Command {
            operation_id: draw(),
            desired_state: self.target,
            base_version: self.confirmed.map(|known| known.version),
        };
        self.flight = Some(Flight { command: command.clone(), is_out: true, may_be_decided: false });
        Next::Send(command)
    }

    /// The rest that was asked for is over.
    pub fn rested(&mut self) {
        self.rest = None;
    }

    /// The command that is out has no verdict: it is sent again with the same id.
    pub fn lost(&mut self, operation_id: &str) {
        if let Some(flight) = &mut self.flight
            && flight.command.operation_id == operation_id
        {
            flight.is_out = false;
            flight.may_be_decided = true;
        }
    }

    /// The call was turned away before the service looked at the command, as for a token that has run out. True if that settles
    /// the intent: one that was lost before may have been applied all the same, and is sent again, by a better call.
    pub fn turned_away(&mut self, operation_id: &str, reason: String) -> bool {
        let is_open = self.flight.as_ref().is_some_and(|flight| flight.may_be_decided);
        if is_open {
            self.lost(operation_id);
        } else {
            self.answered(operation_id, Answer::Refused { reason, current: None });
        }
        !is_open
    }

    /// The service answered. An answer to a command of the past teaches what it may and settles nothing.
    pub fn answered(&mut self, operation_id: &str, answer: Answer) {
        let is_ours = self.flight.as_ref().is_some_and(|flight| flight.command.operation_id == operation_id);
        if is_ours {
            self.flight = None;
        }
        match answer {
            Answer::Settled { current, position } => {
                if self.hear(current, is_ours) {
                    self.position = Some(position);
                }
            }
            Answer::Stale { current } => {
                self.hear(current, is_ours);
            }
            Answer::RateLimited { current, retry_after } => {
                self.hear(current, is_ours);
                if is_ours {
                    self.rest = Some(retry_after);
                }
            }
            Answer::Refused { reason, current } => {
                if let Some(current) = current {
                    self.hear(current, is_ours);
                }
                if !is_ours {
                    return;
                }
                // The heart goes back to what is true.
                self.target = self.state();
                self.is_open = false;
                self.refusal = Some(reason);
            }
            Answer::Expired => {}
        }
    }

    /// Something was read. True if it is at or above what was confirmed.
    pub fn learn(&mut self, read: Known) -> bool {
        self.hear(read, false)
    }

    /// Takes over what the service told, unless more is confirmed already. What an answer to our own command says is no wish of
    /// anybody; the user may want something else by now.
    fn hear(&mut self, told: Known, is_ours: bool) -> bool {
        if self.confirmed.is_some_and(|known| told.version < known.version) {
            return false;
        }
        // Nobody taps here and nothing is on its way: what other devices did is what the user wants.
        if !is_ours && self.is_settled() {
            self.target = told.state;
        }
        self.confirmed = Some(told);
        self.is_open = false;
        true
    }

    /// Whether nothing is left to send.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let is_met = match self.confirmed {
            Some(known) => known.state == self.target,
            None => !self.is_open,
        };
        self.flight.is_none() && is_met
    }

    /// Whether an answer that is older than what is known would have to be corrected before it is shown.
    #[must_use]
    pub fn is_overlaid(&self) -> bool {
        !self.is_settled() || self.position.is_some() || self.confirmed.is_some()
    }

    /// The version that an answer must have to be believed.
    #[must_use]
    pub fn min_version(&self) -> u64 {
        self.confirmed.map_or(0, |known| known.version)
    }

    /// Why the last intent was refused.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// The position that a count must cover to include what the user did.
    #[must_use]
    pub fn position(&self) -> Option<&str> {
        self.position.as_deref()
    }

    fn state(&self) -> LikeState {
        self.confirmed.map_or(LikeState::Unliked, |known| known.state)
    }

    /// The heart to show beside an answer: what the user wants while that is on its way, then whatever is newer.
    pub fn heart(&mut self, read: Known) -> LikeState {
        self.learn(read);
        if self.is_settled() { self.state() } else { self.target }
    }

    /// The number to show for a number that was read. `covers` is the answer's `covers_position` for [`Self::position`].
    ///
    /// A number that does not cover what the user did may hold it all the same, so nothing is ever added to it: until one covers
    /// it, the last number from before is shown, with what the user did.
    pub fn count(&mut self, read: u64, covers: Option<bool>) -> u64 {
        if covers == Some(true) {
            self.counted = self.state();
            self.position = None;
        }
        let shift = self.target.weight() - self.counted.weight();
        if shift == 0 && self.position.is_none() && self.flight.is_none() {
            self.base = Some(read);
            return read;
        }
        match self.base {
            Some(base) => base.saturating_add_signed(shift),
            // Nothing from before is known: whoever likes a video is at least one.
            None => read.max(self.target.weight().unsigned_abs()),
        }
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
