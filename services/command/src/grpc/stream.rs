//! `SetLikeStream`: many users over one connection.
//!
//! Promises: answers leave as commands commit; commands of one relation are decided in the order they came, and none is
//! tried past one that may still be decided; at most `stream_in_flight_max` commands are read and not answered; what was
//! read is finished when the process is asked to end, and a sender that goes away stops nothing.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::pin::Pin;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use likewise_domain::id::{OperationId, UserId, VideoId};
use likewise_kit::auth::{Identity, Proof};
use likewise_kit::errors;
use likewise_proto::command::v1::{SetLikeResponse, SetLikeStreamRequest, SetLikeStreamResponse};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::like_command::{Commands, SET_LIKE, result};
use super::token_user;
use super::told::leaves_open;
use crate::intent::Intent;
use crate::metrics::StreamLoad;

/// What the caller reads.
pub(crate) type Answers = ReceiverStream<Result<SetLikeStreamResponse, Status>>;

type Relation = (UserId, VideoId);

/// A command that is being decided.
type Running = Pin<Box<dyn Future<Output = Done> + Send>>;

struct Done {
    correlation_id: u64,
    relation: Relation,
    operation_id: OperationId,
    told: Result<SetLikeResponse, Status>,
}

struct Waiting {
    correlation_id: u64,
    intent: Intent,
}

/// What the stream knows of one relation.
enum Turn {
    /// A command is being decided; these come after it.
    Busy(VecDeque<Waiting>),
    /// This operation may still be decided: until it is sent again, nothing else of the relation is tried.
    Open(OperationId),
}

/// One stream.
pub(super) struct Conversation {
    commands: Commands,
    incoming: Streaming<SetLikeStreamRequest>,
    answers: mpsc::Sender<Result<SetLikeStreamResponse, Status>>,
    running: FuturesUnordered<Running>,
    turns: HashMap<Relation, Turn>,
    waiting: usize,
    /// Relations whose turn is [`Turn::Open`].
    open: usize,
    load: StreamLoad,
}

/// The other side went away.
struct Gone;

impl Conversation {
    /// Answers what comes in until it ends.
    pub(super) fn begin(commands: Commands, incoming: Streaming<SetLikeStreamRequest>) -> Answers {
        let (answers, outgoing) = mpsc::channel(commands.settings.stream_in_flight_max);
        let conversation = Self {
            load: commands.streams.clone().begin(),
            commands,
            incoming,
            answers,
            running: FuturesUnordered::new(),
            turns: HashMap::new(),
            waiting: 0,
            open: 0,
        };
        tokio::spawn(conversation.run());
        ReceiverStream::new(outgoing)
    }

    async fn run(mut self) {
        let draining = self.commands.draining.clone().cancelled_owned();
        tokio::pin!(draining);
        let most = self.commands.settings.stream_in_flight_max;
        let mut end = None;
        // Nothing waits where nothing runs.
        while end.is_none() || !self.running.is_empty() {
            let reads = end.is_none() && self.running.len() + self.waiting < most;
            let went_on = tokio::select! {
                biased;
                Some(done) = self.running.next() => self.done(done).await,
                () = self.answers.closed() => return,
                () = &mut draining, if end.is_none() => {
                    end = Some(Err(errors::stopping()));
                    Ok(())
                }
                message = self.incoming.message(), if reads => match message {
                    Ok(Some(message)) => self.take(message).await,
                    Ok(None) => {
                        end = Some(Ok(()));
                        Ok(())
                    }
                    Err(status) => {
                        end = Some(Err(errors::undecodable(&status).unwrap_or(status)));
                        Ok(())
                    }
                },
            };
            if went_on.is_err() {
                return;
            }
            self.load.set(self.running.len() + self.waiting);
            // Relations that nobody comes back to must not fill the memory; another stream starts with none.
            if self.open > most && end.is_none() {
                end = Some(Err(errors::stopping()));
            }
        }
        if let Some(Err(status)) = end {
            let _ = self.answers.send(Err(status)).await;
        }
    }

    async fn take(&mut self, message: SetLikeStreamRequest) -> Result<(), Gone> {
        let correlation_id = message.correlation_id;
        match self.understand(message).await {
            Ok(intent) => self.queue(Waiting { correlation_id, intent }).await,
            Err(status) => self.answer(correlation_id, Err(status)).await,
        }
    }

    async fn understand(&mut self, message: SetLikeStreamRequest) -> Result<Intent, Status> {
        if message.user_token.is_empty() {
            return Err(errors::unauthenticated("TOKEN_MISSING", "each command needs its user's bearer token"));
        }
        let Identity::User(claims) = self.commands.verifier.verify(&message.user_token).await? else {
            return Err(errors::role_required("the token of an end user"));
        };
        let command = message.command.ok_or_else(|| errors::invalid_field("command", "must be set"))?;
        let intent = self.commands.parse(&token_user(&claims.sub)?, &command)?;
        let proof = Proof { time: message.request_time.as_deref(), signature: message.signature.as_deref() };
        self.commands.check_proof(&claims, SET_LIKE, std::slice::from_ref(&command), proof)?;
        // The address is the gateway's, and says nothing of its users.
        self.commands.admit(std::slice::from_ref(&intent), command.device_id.as_deref(), None)?;
        Ok(intent)
    }

    async fn queue(&mut self, waiting: Waiting) -> Result<(), Gone> {
        let relation = (waiting.intent.user_id.clone(), waiting.intent.command.video_id.clone());
        match self.turns.entry(relation) {
            Entry::Vacant(turn) => {
                turn.insert(Turn::Busy(VecDeque::new()));
            }
            Entry::Occupied(mut turn) => match turn.get_mut() {
                Turn::Busy(others) => {
                    others.push_back(waiting);
                    self.waiting += 1;
                    return Ok(());
                }
                Turn::Open(first) if *first == waiting.intent.operation_id => {
                    turn.insert(Turn::Busy(VecDeque::new()));
                    self.open -= 1;
                }
                Turn::Open(_) => {
                    return self.answer(waiting.correlation_id, Err(errors::outcome_pending())).await;
                }
            },
        }
        self.start(waiting);
        Ok(())
    }

    fn start(&self, Waiting { correlation_id, intent }: Waiting) {
        let commands = self.commands.clone();
        let relation = (intent.user_id.clone(), intent.command.video_id.clone());
        let operation_id = intent.operation_id.clone();
        self.running.push(Box::pin(async move {
            let told = commands.set(intent).await;
            Done { correlation_id, relation, operation_id, told }
        }));
    }

    async fn done(&mut self, done: Done) -> Result<(), Gone> {
        let is_open = done.told.as_ref().is_err_and(leaves_open);
        self.answer(done.correlation_id, done.told).await?;
        let Some(Turn::Busy(mut others)) = self.turns.remove(&done.relation) else { return Ok(()) };
        if is_open {
            self.turns.insert(done.relation, Turn::Open(done.operation_id));
            self.open += 1;
            for other in others {
                self.waiting -= 1;
                self.answer(other.correlation_id, Err(errors::outcome_pending())).await?;
            }
        } else if let Some(next) = others.pop_front() {
            self.waiting -= 1;
            self.turns.insert(done.relation, Turn::Busy(others));
            self.start(next);
        }
        Ok(())
    }

    async fn answer(&mut self, correlation_id: u64, told: Result<SetLikeResponse, Status>) -> Result<(), Gone> {
        let answer = SetLikeStreamResponse { correlation_id, result: Some(result(told)) };
        self.answers.send(Ok(answer)).await.map_err(|_| Gone)
    }
}
