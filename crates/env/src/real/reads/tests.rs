use std::collections::VecDeque;

use super::*;

/// Reads 10 bytes at 100 of a file of `file_bytes`, while the kernel answers as said.
fn fill(answers: &[Result<usize, Errno>], file_bytes: u64) -> Result<Option<usize>, Errno> {
    let mut answers: VecDeque<_> = answers.iter().copied().collect();
    let read = |rest: &mut [u8], position: u64| {
        assert_eq!(position + rest.len() as u64, 110);
        answers.pop_front().unwrap()
    };
    let filled = fill_cached(100, &mut [0; 10], read, || file_bytes);
    assert!(answers.is_empty(), "{} answers were not waited for", answers.len());
    filled
}

#[test]
fn no_bytes_are_the_end_of_the_file_only_where_it_ends() {
    assert_eq!(fill(&[Ok(10)], 200), Ok(Some(10)));
    assert_eq!(fill(&[Ok(4), Err(Errno::INTR), Ok(6)], 200), Ok(Some(10)));
    assert_eq!(fill(&[Ok(0)], 200), Ok(None), "the kernel would have had to wait");
    assert_eq!(fill(&[Ok(4), Ok(0)], 200), Ok(None), "for the rest of it, too");
    assert_eq!(fill(&[Ok(4), Ok(0)], 105), Ok(None));
    assert_eq!(fill(&[Ok(4), Ok(0)], 104), Ok(Some(4)), "the file ends there");
    assert_eq!(fill(&[Ok(0)], 100), Ok(Some(0)));
    assert_eq!(fill(&[Ok(0)], 7), Ok(Some(0)), "or before");
    assert_eq!(fill(&[Ok(4), Err(Errno::AGAIN)], 200), Err(Errno::AGAIN));
}

/// A file of the system's page cache, whose end is its end.
#[test]
fn a_cached_read_beyond_the_end_is_short() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, [7; 1000]).unwrap();
    let file = Readable::new(fs::File::open(path).unwrap(), None, Choice::Threads);
    for (offset, length, expected) in
        [(0, 1000, 1000), (900, 200, 100), (1000, 10, 0), (5000, 10, 0), (0, 0, 0)]
    {
        // What the file system cannot answer without waiting is not answered here.
        if let Some(read) = file.read_cached(offset, length) {
            assert_eq!(read, vec![7; expected], "{length} bytes at {offset}");
        }
        assert_eq!(file.read_now(offset, length).unwrap(), vec![7; expected]);
    }
}

/// A block that lies across two pages is not read with the rest of both.
#[test]
fn past_the_page_cache_whole_blocks_of_the_device_are_read_not_pages() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, [7; 20_000]).unwrap();
    let alignment = facts::Alignment { read: 512, write: 4096 };
    let file = Readable::new(fs::File::open(path).unwrap(), Some(alignment), Choice::Threads);
    for (offset, length, position, bytes) in
        [(4000, 200, 3584, 1024), (512, 512, 512, 512), (8191, 4610, 7680, 5632)]
    {
        let (_, mut jobs) = Batch::new(vec![None], |batch| vec![Job::new(&file, batch, 0, offset, length)]);
        let mut job = jobs.remove(0);
        assert_eq!((job.position(), job.rest().len()), (position, bytes), "{length} bytes at {offset}");
        assert_eq!(job.rest().as_ptr().addr() % 512, 0);
    }
}

/// More of them than a ring has places, some across the end of the file or beyond it.
#[test]
fn a_thread_makes_many_reads_by_itself() {
    if let Err(reason) = Choice::Best.io_uring() {
        println!("not run, there is no io_uring here: {reason}");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let bytes: Vec<u8> = (0..100_000_u32).map(|place| (place % 251) as u8).collect();
    std::fs::write(&path, &bytes).unwrap();
    let file = Readable::new(fs::File::open(path).unwrap(), None, Choice::Best);
    let ranges: Vec<(u64, usize)> =
        (0..300).map(|index| (index * 337, 700)).chain([(200_000, 5), (7, 0)]).collect();
    for _ in 0..2 {
        let (batch, jobs) = Batch::new(ranges.iter().map(|_| None).collect(), |batch| {
            ranges
                .iter()
                .enumerate()
                .map(|(index, (offset, length))| Job::new(&file, batch, index, *offset, *length))
                .collect()
        });
        assert!(own_ring::run(jobs).is_empty());
        let read = batch.take().expect("all have ended");
        assert_eq!(read.len(), ranges.len());
        for (read, (offset, length)) in read.into_iter().zip(&ranges) {
            let from = usize::try_from(*offset).unwrap().min(bytes.len());
            let expected = &bytes[from..(from + length).min(bytes.len())];
            assert!(read.unwrap() == expected, "{length} bytes at {offset}");
        }
    }
    let threads: Vec<_> = (0..70)
        .map(|_| {
            let file = Arc::clone(&file);
            std::thread::spawn(move || {
                let read = crate::Env::real().block_on(file.read_many(&[(0, 10), (99_990, 10)]));
                read.into_iter().map(|read| read.unwrap().len()).sum::<usize>()
            })
        })
        .collect();
    assert!(threads.into_iter().all(|thread| thread.join().unwrap() == 20));
}

/// Reads that never end by themselves: of a pipe that nobody writes to.
#[test]
fn whoever_waits_for_a_moment_as_well_is_back_for_it() {
    if let Err(reason) = Choice::Best.io_uring() {
        println!("not run, there is no io_uring here: {reason}");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    let pipe = fs::File::options().read(true).write(true).open(&path).unwrap();
    let file = Readable::new(pipe.try_clone().unwrap(), None, Choice::Best);
    let (tell, told) = std::sync::mpsc::channel::<()>();
    // A thread that stays in the read is let go at last, and seen to have stayed.
    let writer = std::thread::spawn(move || {
        let _told = told.recv_timeout(std::time::Duration::from_secs(5));
        std::io::Write::write_all(&mut &pipe, &[7; 20]).unwrap();
    });
    let env = crate::Env::real();
    let mut read = file.read_many(&[(0, 10), (10, 10)]);
    let mut pause = env.sleep(std::time::Duration::from_millis(1));
    let is_read = env.block_on(std::future::poll_fn(|context| {
        if read.as_mut().poll(context).is_ready() {
            return Poll::Ready(true);
        }
        pause.as_mut().poll(context).map(|()| false)
    }));
    assert!(!is_read, "the thread stayed in the read beyond its moment");
    tell.send(()).unwrap();
    assert!(env.block_on(read).into_iter().all(|read| read.unwrap() == [7; 10]));
    writer.join().unwrap();
}

/// Far more of them than the kernel is given at once, one after the other, by several threads.
#[test]
fn reads_that_are_left_to_the_reaping_thread_all_end() {
    if let Err(reason) = Choice::Best.io_uring() {
        println!("not run, there is no io_uring here: {reason}");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let bytes: Vec<u8> = (0..100_000_u32).map(|place| (place % 251) as u8).collect();
    std::fs::write(&path, &bytes).unwrap();
    let file = Readable::new(fs::File::open(path).unwrap(), None, Choice::Best);
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let (file, bytes) = (&file, &bytes);
            scope.spawn(move || {
                let begin = |number: u64| {
                    let offset = (thread * 7919 + number * 337) % 99_000;
                    let (batch, jobs) =
                        Batch::new(vec![None], |batch| vec![Job::new(file, batch, 0, offset, 700)]);
                    hand_over(jobs);
                    (batch, offset as usize)
                };
                for (batch, offset) in (0..1000).map(begin).collect::<Vec<_>>() {
                    let read = loop {
                        match batch.take() {
                            Some(mut results) => break results.remove(0).unwrap(),
                            None => std::thread::yield_now(),
                        }
                    };
                    assert_eq!(read, bytes[offset..offset + 700]);
                }
            });
        }
    });
}
