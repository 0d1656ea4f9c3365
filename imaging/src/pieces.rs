//! Pieces of an image, from the thread that unpacks it to the one that writes it.
//!
//! There are so many buffers and no more, which go round: who unpacks waits for an empty one, who writes for a full one. Each side sees
//! that the other one has ended.

use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};

/// Written at once. The network gives less, and storage that is far away takes a while for each operation.
pub(crate) const PIECE: usize = 1 << 20;
/// One that is filled, one that is written, and some between them: neither side is always as fast as the other.
const BUFFERS: usize = 4;

/// In this order; an image that is not whole has no end.
pub(crate) enum Step {
    Begin,
    /// The next bytes: as many as the buffer has, which are [`PIECE`] but for the last one.
    Piece(Vec<u8>),
    /// All of it came, and is what was meant.
    End,
}

/// The other side has ended.
#[derive(Debug)]
pub(crate) struct Gone;

pub(crate) struct Filling {
    steps: Sender<Step>,
    empty: Receiver<Vec<u8>>,
    made: usize,
}

pub(crate) struct Writing {
    steps: Receiver<Step>,
    empty: Sender<Vec<u8>>,
}

pub(crate) fn pieces() -> (Filling, Writing) {
    let (steps, taken) = mpsc::channel();
    let (back, empty) = mpsc::channel();
    (Filling { steps, empty, made: 0 }, Writing { steps: taken, empty: back })
}

impl Filling {
    /// Of [`PIECE`] bytes, whatever they are.
    pub(crate) fn buffer(&mut self) -> Result<Vec<u8>, Gone> {
        // One that was just written before a new one: where the writer keeps up, all of them stay in the processor's cache.
        match self.empty.try_recv() {
            Ok(buffer) => Ok(buffer),
            Err(TryRecvError::Disconnected) => Err(Gone),
            Err(TryRecvError::Empty) if self.made < BUFFERS => {
                self.made += 1;
                Ok(vec![0; PIECE])
            }
            Err(TryRecvError::Empty) => self.empty.recv().map_err(|_| Gone),
        }
    }

    pub(crate) fn put(&self, step: Step) -> Result<(), Gone> {
        self.steps.send(step).map_err(|_| Gone)
    }
}

impl Writing {
    /// The next step; none: the other side has ended.
    pub(crate) fn next(&self) -> Option<Step> {
        self.steps.recv().ok()
    }

    pub(crate) fn written(&self, buffer: Vec<u8>) {
        // Who has unpacked all of it needs no buffer any more.
        let _ = self.empty.send(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_so_many_buffers_and_no_more() {
        let (mut filling, writing) = pieces();
        for _ in 0..BUFFERS {
            let buffer = filling.buffer().expect("there is room");
            filling.put(Step::Piece(buffer)).expect("somebody writes");
        }
        let filler = std::thread::spawn(move || filling.buffer().map(|buffer| buffer.len()));
        let Some(Step::Piece(mut buffer)) = writing.next() else { panic!("a piece was put") };
        assert!(!filler.is_finished(), "all buffers are on their way");
        // What is given back is what comes round, told by its length.
        buffer.truncate(7);
        writing.written(buffer);
        assert_eq!(filler.join().expect("no panic").expect("there is one"), 7);
    }

    #[test]
    fn each_side_sees_that_the_other_one_has_ended() {
        let (mut filling, writing) = pieces();
        for _ in 0..BUFFERS {
            filling.buffer().expect("there is room");
        }
        let filler = std::thread::spawn(move || (filling.buffer().is_err(), filling.put(Step::Begin).is_err()));
        drop(writing);
        assert_eq!(filler.join().expect("no panic"), (true, true));
        let (filling, writing) = pieces();
        drop(filling);
        assert!(writing.next().is_none());
    }
}
