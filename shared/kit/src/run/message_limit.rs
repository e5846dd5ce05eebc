//! Refuses a request message that is too large before any of it is kept.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tonic::body::Body;
use tonic::{Code, Status};

use crate::errors;

/// One flag byte and four bytes of length stand before each message.
const HEAD_BYTES: usize = 5;

/// Follows the messages in a stream of bytes.
#[derive(Debug, Default)]
struct Messages {
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
    /// Bytes of the present message still to come.
    left: usize,
}

impl Messages {
    /// Takes the next bytes; the length of the first message above `bytes_max` is the error.
    fn take(&mut self, mut bytes: &[u8], bytes_max: usize) -> Result<(), usize> {
        while !bytes.is_empty() {
            if self.left > 0 {
                let taken = self.left.min(bytes.len());
                self.left -= taken;
                bytes = &bytes[taken..];
                continue;
            }
            self.head[self.head_bytes] = bytes[0];
            self.head_bytes += 1;
            bytes = &bytes[1..];
            if self.head_bytes == HEAD_BYTES {
                self.head_bytes = 0;
                let [_, length @ ..] = self.head;
                self.left = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
                if self.left > bytes_max {
                    return Err(self.left);
                }
            }
        }
        Ok(())
    }
}

/// A request body whose messages have at most so many bytes each.
pub(super) struct Limited {
    body: Body,
    messages: Messages,
    bytes_max: usize,
}

impl Limited {
    pub(super) fn new(body: Body, bytes_max: usize) -> Self {
        Self { body, messages: Messages::default(), bytes_max }
    }
}

impl http_body::Body for Limited {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(task));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
            && this.messages.take(data, this.bytes_max).is_err()
        {
            let message = format!("a request message may have at most {} bytes", this.bytes_max);
            return Poll::Ready(Some(Err(errors::refused(Code::InvalidArgument, "REQUEST_TOO_LARGE", message))));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stream(lengths: &[usize]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for &length in lengths {
            bytes.push(0);
            bytes.extend_from_slice(&u32::try_from(length).expect("small").to_be_bytes());
            bytes.extend(std::iter::repeat_n(7, length));
        }
        bytes
    }

    proptest! {
        #[test]
        fn the_first_message_above_the_limit_is_found_however_the_bytes_are_cut(
            lengths in prop::collection::vec(0_usize..40, 0..8),
            cuts in prop::collection::vec(1_usize..9, 1..200),
        ) {
            let bytes = stream(&lengths);
            let mut messages = Messages::default();
            let mut rest = bytes.as_slice();
            let mut result = Ok(());
            for cut in cuts.iter().cycle() {
                if rest.is_empty() || result.is_err() {
                    break;
                }
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                result = messages.take(now, 30);
                rest = later;
            }
            let expected = lengths.iter().copied().find(|length| *length > 30);
            prop_assert_eq!(result.err(), expected);
        }
    }
}
