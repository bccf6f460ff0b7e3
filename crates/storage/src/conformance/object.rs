//! What every [`ObjectStore`] promises.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tombolo_env::{Env, TaskClass, completion};

use super::{Checked, Verdict, Violation, ensure};
use crate::object::PUT_BYTES_MAX;
use crate::{
    Epoch, ErrorKind, Life, Listed, ObjectKind, ObjectName, ObjectStore, Placement, Purpose, PutOutcome,
    Request, Result,
};

/// Tasks that put one name at once.
const RACERS: u64 = 12;
/// Names that they race for.
const RACES: u64 = 16;
/// Steps of the writer whose names a list watches.
const STEPS: u64 = 60;

/// Between two looks of a watcher: it must let the others run, on however few threads.
const PAUSE: Duration = Duration::from_micros(20);

/// Puts `store` through every check. About 600 requests; objects of at most a few MiB, all deleted
/// at the end.
///
/// # Errors
/// The first promise found broken.
pub async fn object_store(env: &Env, store: Arc<dyn ObjectStore>) -> Verdict {
    let run = Run { env: env.clone(), root: format!("conformance-{:016x}", env.random_u64()), store };
    run.whole().await?;
    run.ranges().await?;
    run.absent().await?;
    run.names().await?;
    run.streams().await?;
    run.lists().await?;
    run.deletes().await?;
    run.copies().await?;
    run.limits().await?;
    run.put_races().await?;
    run.stream_races().await?;
    run.newest_first().await?;
    run.standing_name().await?;
    if !run.store.traits().lists_may_walk {
        run.moving_name().await?;
    }
    run.sweeps().await?;
    run.tidy().await
}

#[derive(Clone)]
struct Run {
    env: Env,
    store: Arc<dyn ObjectStore>,
    root: String,
}

fn request() -> Request {
    Request::new(Purpose::Verify, Epoch::NONE)
}

fn placement() -> Placement {
    Placement::new(ObjectKind::Other, Life::Short)
}

/// Bytes that differ from object to object and from place to place.
fn pattern(seed: u64, length: usize) -> Bytes {
    let seed = seed.wrapping_mul(0xD1B5_4A32_D192_ED03);
    let mut bytes = Vec::with_capacity(length + 8);
    for word in 0..length.div_ceil(8) as u64 {
        let word = word.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ seed;
        bytes.extend_from_slice(&(word ^ (word >> 32)).to_le_bytes());
    }
    bytes.truncate(length);
    bytes.into()
}

fn kind_of<T>(result: &Result<T>) -> Option<ErrorKind> {
    result.as_ref().err().map(crate::Error::kind)
}

impl Run {
    fn name(&self, name: impl std::fmt::Display) -> Result<ObjectName> {
        ObjectName::new(format!("{}/{name}", self.root))
    }

    async fn put(&self, name: &ObjectName, bytes: impl Into<Bytes>) -> Result<PutOutcome> {
        self.store.put_if_absent(request(), name, placement(), bytes.into()).await
    }

    async fn read(&self, name: &ObjectName, range: Range<u64>) -> Result<Bytes> {
        self.store.read(request(), name, range).await
    }

    async fn all(&self, name: &ObjectName) -> Result<Bytes> {
        self.read(name, 0..u64::MAX).await
    }

    async fn list(&self, prefix: &str, after: Option<&ObjectName>, limit: usize) -> Result<Listed> {
        self.store.list(request(), prefix, after, limit).await
    }

    /// All names below the run's `directory`, by pages of `limit`, without the root.
    async fn listed(&self, prefix: &str, limit: usize) -> Checked<Vec<String>> {
        let prefix = format!("{}/{prefix}", self.root);
        let mut names: Vec<String> = Vec::new();
        let mut after: Option<ObjectName> = None;
        loop {
            let page = self.list(&prefix, after.as_ref(), limit).await?;
            ensure!(
                page.objects.len() <= limit,
                "a page of {} names where {limit} were asked for",
                page.objects.len()
            );
            ensure!(!page.more || !page.objects.is_empty(), "an empty page that says more follows");
            for info in page.objects {
                let shown = info.name.as_str();
                ensure!(shown.starts_with(&prefix), "{shown} listed under {prefix}");
                ensure!(
                    after.as_ref().is_none_or(|after| *after < info.name),
                    "{shown} listed after {after:?}: not ascending"
                );
                names.push(shown[self.root.len() + 1..].into());
                after = Some(info.name);
            }
            if !page.more {
                return Ok(names);
            }
        }
    }

    async fn whole(&self) -> Verdict {
        for (index, length) in [0_usize, 1, 7, 4096, 70_000, 1 << 20].into_iter().enumerate() {
            let name = self.name(format_args!("whole/{index}"))?;
            let bytes = pattern(index as u64, length);
            ensure!(
                self.put(&name, bytes.clone()).await? == PutOutcome::Created,
                "a put of the free name {name} was not Created"
            );
            ensure!(self.all(&name).await? == bytes, "{name} reads back other bytes than were put");
            ensure!(
                self.store.length(request(), &name).await? == length as u64,
                "{name} has another length than was put"
            );
            ensure!(
                self.put(&name, &b"other"[..]).await? == PutOutcome::Exists,
                "a put of the taken name {name} was not Exists"
            );
            ensure!(
                self.put(&name, bytes.clone()).await? == PutOutcome::Exists,
                "a second put of the same bytes to {name} was not Exists"
            );
            ensure!(self.all(&name).await? == bytes, "a put of a taken name changed {name}");
        }
        Ok(())
    }

    async fn ranges(&self) -> Verdict {
        let name = self.name("ranges")?;
        let bytes = pattern(77, 300_000);
        self.put(&name, bytes.clone()).await?;
        let expected = |range: &Range<u64>| {
            let clamp = |position: u64| usize::try_from(position).unwrap_or(usize::MAX).min(bytes.len());
            if clamp(range.start) < clamp(range.end) {
                bytes.slice(clamp(range.start)..clamp(range.end))
            } else {
                Bytes::new()
            }
        };
        #[expect(clippy::reversed_empty_ranges, reason = "a reversed range is empty too")]
        let ranges = [
            200_000..200_100,
            0..10,
            5..20,
            0..0,
            10..4000,
            4100..4200,
            299_990..300_000,
            299_990..400_000,
            300_000..300_001,
            u64::MAX - 1..u64::MAX,
            0..u64::MAX,
            20..10,
            100_000..290_000,
        ];
        for range in &ranges {
            ensure!(
                self.read(&name, range.clone()).await? == expected(range),
                "the range {range:?} of {name} read wrong"
            );
            // Whether it shows anything is its own affair; what it shows is not.
            let (mut shown, get) = (None, Request { purpose: Purpose::Get, ..request() });
            let was_shown = self
                .store
                .with_held(get, &name, range.clone(), &mut |held| shown = Some(Bytes::copy_from_slice(held)));
            ensure!(
                was_shown == shown.is_some(),
                "the range {range:?} of {name} was shown, or not, and the store says otherwise"
            );
            ensure!(
                shown.is_none_or(|shown| shown == expected(range)),
                "the range {range:?} of {name} was shown wrong"
            );
        }
        let many = self.store.read_ranges(request(), &name, &ranges).await?;
        ensure!(many.len() == ranges.len(), "{} ranges asked for, {} given", ranges.len(), many.len());
        for (range, read) in ranges.iter().zip(&many) {
            ensure!(*read == expected(range), "the range {range:?} of {name} read wrong among many");
        }
        ensure!(
            self.store.read_ranges(request(), &name, &[]).await?.is_empty(),
            "no ranges asked for, some given"
        );
        Ok(())
    }

    async fn absent(&self) -> Verdict {
        let name = self.name("absent/never-put")?;
        let here = self.name("absent/here")?;
        self.put(&here, &b"x"[..]).await?;
        // A directory, and something below an object, are no objects either.
        for name in [name, self.name("absent")?, self.name("absent/here/below")?, self.name("no/such/tree")?]
        {
            let expect = Some(ErrorKind::NotFound);
            ensure!(
                kind_of(&self.read(&name, 0..1).await) == expect,
                "reading the absent {name} was not NotFound"
            );
            ensure!(
                !self.store.with_held(request(), &name, 0..1, &mut |_| ()),
                "something of the absent {name} was shown"
            );
            let many = self.store.read_ranges(request(), &name, std::slice::from_ref(&(0..1))).await;
            ensure!(kind_of(&many) == expect, "reading ranges of the absent {name} was not NotFound");
            ensure!(
                kind_of(&self.store.length(request(), &name).await) == expect,
                "the length of the absent {name} was not NotFound"
            );
            let copy = self.store.copy(request(), &name, &self.name("absent/copy")?).await;
            ensure!(kind_of(&copy) == expect, "copying the absent {name} was not NotFound");
            self.store.delete(request(), &name).await?;
        }
        ensure!(self.all(&here).await? == b"x"[..], "deleting names around an object changed it");
        Ok(())
    }

    async fn names(&self) -> Verdict {
        let long = format!("names/{}/{}", "d".repeat(200), "o".repeat(200));
        let mut names: Vec<String> = [
            "names/A",
            "names/a",
            "names/.hidden",
            "names/a.b",
            "names/a-b",
            "names/~",
            "names/x_y",
            "names/...",
            "names/0",
        ]
        .map(String::from)
        .to_vec();
        names.push(long);
        for (index, name) in names.iter().enumerate() {
            let name = self.name(name)?;
            ensure!(
                self.put(&name, pattern(index as u64, 10)).await? == PutOutcome::Created,
                "the name {name} was taken by another"
            );
        }
        for (index, name) in names.iter().enumerate() {
            let name = self.name(name)?;
            ensure!(
                self.all(&name).await? == pattern(index as u64, 10),
                "the name {name} stands for another object"
            );
        }
        names.sort_unstable();
        ensure!(self.listed("names/", 100).await? == names, "a list shows other names than were put");
        Ok(())
    }

    async fn streams(&self) -> Verdict {
        let name = self.name("streams/object")?;
        let pieces: Vec<Bytes> = [0, 1, 100, 262_144, 5, 700_000, 262_143, 1, 0]
            .iter()
            .map(|&length| pattern(length as u64, length))
            .collect();
        let mut writer = self.store.create(request(), &name, placement()).await?;
        for piece in &pieces {
            writer.append(piece.clone()).await?;
            ensure!(
                kind_of(&self.read(&name, 0..1).await) == Some(ErrorKind::NotFound),
                "{name} can be read before it is finished"
            );
            ensure!(self.listed("streams/", 10).await?.is_empty(), "{name} is listed before it is finished");
        }
        let whole = pieces.concat();
        let info = writer.finish().await?;
        ensure!(info.name == name && info.length == whole.len() as u64, "finishing {name} said {info:?}");
        ensure!(self.all(&name).await? == whole, "{name} is not its pieces put together");

        let empty = self.name("streams/empty")?;
        self.store.create(request(), &empty, placement()).await?.finish().await?;
        ensure!(self.store.length(request(), &empty).await? == 0, "an object without pieces is not empty");

        let dropped = self.name("streams/dropped")?;
        let mut writer = self.store.create(request(), &dropped, placement()).await?;
        writer.append(pattern(1, 600_000)).await?;
        drop(writer);
        ensure!(
            self.listed("streams/", 10).await? == ["streams/empty", "streams/object"],
            "a writer that was dropped left an object"
        );
        ensure!(
            self.put(&dropped, &b"x"[..]).await? == PutOutcome::Created,
            "a writer that was dropped holds its name"
        );

        let taken = self.name("streams/taken")?;
        let mut writer = self.store.create(request(), &taken, placement()).await?;
        writer.append(pattern(2, 1000)).await?;
        ensure!(
            self.put(&taken, &b"put"[..]).await? == PutOutcome::Created,
            "an unfinished object holds its name"
        );
        ensure!(
            kind_of(&writer.finish().await) == Some(ErrorKind::AlreadyExists),
            "finishing a taken name was not AlreadyExists"
        );
        ensure!(self.all(&taken).await? == b"put"[..], "finishing a taken name changed it");
        Ok(())
    }

    async fn lists(&self) -> Verdict {
        // `-` and `.` sort before `/`, digits and letters behind: an order of directories differs
        // from the order of names.
        let mut names = [
            "a", "a-b", "a.b", "a0", "b/a", "b/b", "b-/c", "b./c", "b0/c", "c/d/e/f", "c/d/e-f", "c/d-e",
            "zz",
        ]
        .map(|name| format!("lists/{name}"))
        .to_vec();
        for name in names.iter().rev() {
            self.put(&self.name(name)?, pattern(3, name.len())).await?;
        }
        names.sort_unstable();
        for limit in [1, 2, 3, 5, 100] {
            let found = self.listed("lists/", limit).await?;
            ensure!(found == names, "pages of {limit} list {found:?} instead of {names:?}");
        }
        for prefix in [
            "lists/a",
            "lists/b",
            "lists/b/",
            "lists/b-",
            "lists/c/d",
            "lists/c/d/",
            "lists/z",
            "lists/zzz",
            "lists/c/d/e/f",
            "list",
        ] {
            let found = self.listed(prefix, 100).await?;
            let expected: Vec<&String> = names.iter().filter(|name| name.starts_with(prefix)).collect();
            ensure!(
                found.iter().eq(expected.iter().copied()),
                "the prefix {prefix} lists {found:?} instead of {expected:?}"
            );
        }
        for after in [
            "lists/0",
            "lists/a",
            "lists/a-z",
            "lists/b",
            "lists/b/a",
            "lists/b/aa",
            "lists/c/d/e/f",
            "lists/zz",
            "lists/zzz",
            "zzz",
            "a",
        ] {
            let after = self.name(after)?;
            let page = self.list(&format!("{}/lists/", self.root), Some(&after), 3).await?;
            let found: Vec<&str> =
                page.objects.iter().map(|info| &info.name.as_str()[self.root.len() + 1..]).collect();
            let expected: Vec<&str> = names
                .iter()
                .map(String::as_str)
                .filter(|name| *format!("{}/{name}", self.root) > *after.as_str())
                .collect();
            ensure!(
                found == expected[..expected.len().min(3)],
                "after {after} come {found:?} instead of {expected:?}"
            );
            ensure!(
                page.more == (expected.len() > 3),
                "after {after} come {} names, and `more` is {}",
                expected.len(),
                page.more
            );
        }
        let page = self.list(&format!("{}/lists/", self.root), None, 100).await?;
        for info in page.objects {
            let length = info.name.as_str().len() - self.root.len() - 1;
            ensure!(
                info.length == length as u64,
                "{} is listed with a wrong length {}",
                info.name,
                info.length
            );
        }
        for prefix in ["../", "/", "no-such/", "a//b", "\u{7f}"] {
            let page = self.list(prefix, None, 10).await?;
            ensure!(
                page.objects.is_empty() && !page.more,
                "the prefix {prefix:?}, which no name has, lists {:?}",
                page.objects
            );
        }
        Ok(())
    }

    async fn deletes(&self) -> Verdict {
        let name = self.name("deletes/object")?;
        for round in 0..3 {
            ensure!(
                self.put(&name, pattern(round, 100)).await? == PutOutcome::Created,
                "a deleted name is not free"
            );
            ensure!(self.all(&name).await? == pattern(round, 100), "a name put again reads old bytes");
            self.store.delete(request(), &name).await?;
            ensure!(
                kind_of(&self.read(&name, 0..1).await) == Some(ErrorKind::NotFound),
                "a deleted object can be read"
            );
            ensure!(self.listed("deletes/", 10).await?.is_empty(), "a deleted object is listed");
            self.store.delete(request(), &name).await?;
        }
        Ok(())
    }

    async fn copies(&self) -> Verdict {
        let (from, to) = (self.name("copies/from")?, self.name("copies/deep/er/to")?);
        let bytes = pattern(9, 50_000);
        self.put(&from, bytes.clone()).await?;
        ensure!(
            self.store.copy(request(), &from, &to).await? == PutOutcome::Created,
            "a copy to a free name was not Created"
        );
        ensure!(self.all(&to).await? == bytes, "a copy holds other bytes");
        self.put(&self.name("copies/taken")?, &b"taken"[..]).await?;
        let outcome = self.store.copy(request(), &from, &self.name("copies/taken")?).await?;
        ensure!(outcome == PutOutcome::Exists, "a copy to a taken name was not Exists");
        ensure!(
            self.all(&self.name("copies/taken")?).await? == b"taken"[..],
            "a copy changed what held its name"
        );
        self.store.delete(request(), &from).await?;
        ensure!(self.all(&to).await? == bytes, "a copy went with its source");
        Ok(())
    }

    async fn limits(&self) -> Verdict {
        let name = self.name("limits")?;
        let outcome = self.put(&name, vec![0; PUT_BYTES_MAX + 1]).await;
        ensure!(
            kind_of(&outcome) == Some(ErrorKind::Invalid),
            "a put over the limit gave {outcome:?} instead of Invalid"
        );
        ensure!(
            kind_of(&self.read(&name, 0..1).await) == Some(ErrorKind::NotFound),
            "a refused put left an object"
        );
        ensure!(!self.store.describe().is_empty(), "the store does not say what it is");
        Ok(())
    }

    /// Runs `racers` at once and collects what they return.
    async fn together<T: Send + 'static>(
        &self,
        racers: impl Iterator<Item = impl Future<Output = T> + Send + 'static>,
    ) -> Checked<Vec<T>> {
        let mut waiting = Vec::new();
        for racer in racers {
            let (completer, completion) = completion();
            let task = self
                .env
                .spawn(TaskClass::Foreground, "conformance", async move { completer.complete(racer.await) });
            waiting.push((task, completion));
        }
        let mut results = Vec::new();
        for (task, completion) in waiting {
            results.push(completion.await.ok_or_else(|| Violation::new("a task ended without a result"))?);
            drop(task);
        }
        Ok(results)
    }

    async fn put_races(&self) -> Verdict {
        for race in 0..RACES {
            let name = self.name(format_args!("races/{race}"))?;
            let outcomes = self
                .together((0..RACERS).map(|racer| {
                    let (run, name) = (self.clone(), name.clone());
                    async move {
                        let bytes = pattern(race * RACERS + racer, 2000);
                        let outcome = run.put(&name, bytes.clone()).await;
                        // The losers see the winner at once: whole, and never anything else.
                        (outcome, bytes, run.all(&name).await)
                    }
                }))
                .await?;
            let mut winners = Vec::new();
            for (outcome, bytes, _) in &outcomes {
                if outcome.clone()? == PutOutcome::Created {
                    winners.push(bytes);
                }
            }
            ensure!(winners.len() == 1, "{} of {RACERS} puts of one name were Created", winners.len());
            for (_, _, seen) in &outcomes {
                ensure!(
                    seen.clone()? == winners[0],
                    "after its put returned, a racer read other bytes than the winner's"
                );
            }
        }
        Ok(())
    }

    async fn stream_races(&self) -> Verdict {
        for race in 0..RACES / 4 {
            let name = self.name(format_args!("stream-races/{race}"))?;
            let outcomes = self
                .together((0..4).map(|racer| {
                    let (run, name) = (self.clone(), name.clone());
                    async move {
                        let mut writer = run.store.create(request(), &name, placement()).await?;
                        for piece in 0..3 {
                            writer.append(pattern(racer * 10 + piece, 1000)).await?;
                        }
                        match writer.finish().await {
                            Ok(_) => Ok(Some(racer)),
                            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
                            Err(error) => Err(error),
                        }
                    }
                }))
                .await?;
            let mut winners = Vec::new();
            for outcome in outcomes {
                winners.extend(outcome?);
            }
            ensure!(winners.len() == 1, "{} of 4 writers finished one name", winners.len());
            let expected: Vec<u8> = (0..3).flat_map(|piece| pattern(winners[0] * 10 + piece, 1000)).collect();
            ensure!(self.all(&name).await? == expected, "the object is not the winner's");
        }
        Ok(())
    }

    /// Names that sort the newest first, as the manifest's do: a list of one never shows less than
    /// was there when it began.
    async fn newest_first(&self) -> Verdict {
        let name = |run: &Run, step: u64| run.name(format_args!("newest/{:016x}", u64::MAX - step));
        let prefix = format!("{}/newest/", self.root);
        self.put(&name(self, 0)?, pattern(0, 10)).await?;
        let newest = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let writer = {
            let (run, newest) = (self.clone(), Arc::clone(&newest));
            async move {
                for step in 1..=STEPS {
                    run.put(&name(&run, step)?, pattern(step, 10)).await?;
                    newest.store(step, std::sync::atomic::Ordering::SeqCst);
                }
                Ok::<_, Violation>(())
            }
        };
        let reader = || {
            let (run, newest, prefix) = (self.clone(), Arc::clone(&newest), prefix.clone());
            async move {
                loop {
                    let before = newest.load(std::sync::atomic::Ordering::SeqCst);
                    let page = run.list(&prefix, None, 1).await?;
                    let shown = page.objects.first().map(|info| info.name.clone());
                    let least = name(&run, before)?;
                    ensure!(
                        shown.as_ref().is_some_and(|shown| *shown <= least),
                        "a list begun after {least} was created shows {shown:?} as the smallest"
                    );
                    if before == STEPS {
                        return Ok(());
                    }
                    run.env.sleep(PAUSE).await;
                }
            }
        };
        let tasks: Vec<tombolo_env::BoxFuture<'static, Verdict>> =
            vec![Box::pin(writer), Box::pin(reader()), Box::pin(reader())];
        self.together(tasks.into_iter()).await?.into_iter().collect()
    }

    /// One name stands while names on both sides of it come and go: no list of one shows a later
    /// one, or none.
    async fn standing_name(&self) -> Verdict {
        let standing = self.name("standing/0000000000000500")?;
        self.put(&standing, pattern(0, 10)).await?;
        let shows_it = move |page: &Listed| {
            let shown = page.objects.first().map(|info| &info.name);
            ensure!(
                shown.is_some_and(|shown| *shown <= standing),
                "a list of one shows {shown:?} while {standing} stands"
            );
            Ok(())
        };
        self.watched_while_names_move("standing", shows_it).await
    }

    /// One name is always there, but never the same: the next is made before the last is deleted.
    /// No list of one may miss it.
    async fn moving_name(&self) -> Verdict {
        let shows_one = |page: &Listed| {
            ensure!(
                page.objects.len() == 1,
                "a list of one name shows none although one was there at every moment"
            );
            Ok(())
        };
        self.watched_while_names_move("moving", shows_one).await
    }

    /// Has two tasks list one name of a directory, and `judge` what they are shown, while a third
    /// makes names there and deletes the ones before.
    async fn watched_while_names_move(
        &self,
        directory: &str,
        judge: impl Fn(&Listed) -> Verdict + Send + Sync + 'static,
    ) -> Verdict {
        // Up and down, so that neither order of reading a directory is lucky.
        let name = {
            let directory = directory.to_owned();
            move |run: &Run, step: u64| {
                let place = if step.is_multiple_of(2) { step } else { 1000 - step };
                run.name(format_args!("{directory}/{place:016}"))
            }
        };
        self.put(&name(self, 0)?, pattern(0, 10)).await?;
        let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let writer = {
            let (run, done) = (self.clone(), Arc::clone(&done));
            async move {
                for step in 1..=STEPS {
                    run.put(&name(&run, step)?, pattern(step, 10)).await?;
                    run.store.delete(request(), &name(&run, step - 1)?).await?;
                }
                done.store(true, std::sync::atomic::Ordering::SeqCst);
                Ok::<_, Violation>(())
            }
        };
        let judge = Arc::new(judge);
        let reader = || {
            let (run, done, judge) = (self.clone(), Arc::clone(&done), Arc::clone(&judge));
            let prefix = format!("{}/{directory}/", self.root);
            async move {
                while !done.load(std::sync::atomic::Ordering::SeqCst) {
                    judge(&run.list(&prefix, None, 1).await?)?;
                    run.env.sleep(PAUSE).await;
                }
                Ok(())
            }
        };
        let tasks: Vec<tombolo_env::BoxFuture<'static, Verdict>> =
            vec![Box::pin(writer), Box::pin(reader()), Box::pin(reader())];
        self.together(tasks.into_iter()).await?.into_iter().collect()
    }

    async fn sweeps(&self) -> Verdict {
        let name = self.name("sweeps/object")?;
        let bytes = pattern(5, 600_000);
        let mut writer = self.store.create(request(), &name, placement()).await?;
        writer.append(bytes.clone()).await?;
        self.store.sweep(request()).await?;
        writer.finish().await?;
        self.store.sweep(request()).await?;
        ensure!(self.all(&name).await? == bytes, "a sweep took what a live process was writing");
        Ok(())
    }

    async fn tidy(&self) -> Verdict {
        for name in self.listed("", 100).await? {
            self.store.delete(request(), &self.name(name)?).await?;
        }
        ensure!(self.listed("", 100).await?.is_empty(), "objects are listed after all were deleted");
        Ok(())
    }
}
