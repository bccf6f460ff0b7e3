//! Operations whose results are made typed.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tombolo::{Error, ErrorKind, Op, Result};

/// Makes the result.
type Finish<T, U> = Box<dyn FnOnce(T) -> Result<U> + Send>;

/// A [`tombolo::Op`] whose result is made typed when it is taken: `.await` it, or
/// [`TypedOp::wait`] for it.
#[must_use = "an operation tells how it ended only to those who ask: `.await` or `.wait()`"]
pub struct TypedOp<T, U> {
    op: Op<T>,
    /// Invariant: `Some` until the result was taken.
    finish: Option<Finish<T, U>>,
}

impl<T, U> fmt::Debug for TypedOp<T, U> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("TypedOp").field(&self.op).finish()
    }
}

impl<T: Send + 'static, U> TypedOp<T, U> {
    pub(crate) fn new(op: Op<T>, finish: impl FnOnce(T) -> Result<U> + Send + 'static) -> TypedOp<T, U> {
        TypedOp { op, finish: Some(Box::new(finish)) }
    }

    pub(crate) fn failed(error: Error) -> TypedOp<T, U> {
        TypedOp { op: Op::ready(Err(error)), finish: None }
    }

    /// Waits for the end on the calling thread, which runs no tasks.
    ///
    /// # Errors
    /// Those of the operation, and of what it gives: see the verb.
    pub fn wait(self) -> Result<U> {
        let found = self.op.wait()?;
        finished(self.finish, found)
    }
}

fn finished<T, U>(finish: Option<Finish<T, U>>, found: T) -> Result<U> {
    match finish {
        Some(finish) => finish(found),
        None => Err(Error::new(ErrorKind::Closed, "the result of the operation was taken already")),
    }
}

impl<T: Send + 'static, U> Future for TypedOp<T, U> {
    type Output = Result<U>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<U>> {
        let this = &mut *self;
        match Pin::new(&mut this.op).poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(found)) => Poll::Ready(finished(this.finish.take(), found)),
        }
    }
}
