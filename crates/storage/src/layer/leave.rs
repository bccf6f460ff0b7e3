//! What layers do not touch.

/// The methods of [`ObjectStore`](crate::ObjectStore) that a layer leaves to the store that it
/// wraps, its field `inner`.
macro_rules! leave_to_inner {
    (@ create) => {
        fn create<'a>(
            &'a self,
            request: $crate::Request,
            name: &'a $crate::ObjectName,
            placement: $crate::Placement,
        ) -> tombolo_env::BoxFuture<'a, $crate::Result<Box<dyn $crate::ObjectWriter>>> {
            self.inner.create(request, name, placement)
        }
    };
    (@ put_if_absent) => {
        fn put_if_absent<'a>(
            &'a self,
            request: $crate::Request,
            name: &'a $crate::ObjectName,
            placement: $crate::Placement,
            bytes: bytes::Bytes,
        ) -> tombolo_env::BoxFuture<'a, $crate::Result<$crate::PutOutcome>> {
            self.inner.put_if_absent(request, name, placement, bytes)
        }
    };
    (@ with_held) => {
        fn with_held(
            &self,
            request: $crate::Request,
            name: &$crate::ObjectName,
            range: std::ops::Range<u64>,
            show: &mut dyn FnMut(&[u8]),
        ) -> bool {
            self.inner.with_held(request, name, range, show)
        }
    };
    (@ read_ranges) => {
        fn read_ranges<'a>(
            &'a self,
            request: $crate::Request,
            name: &'a $crate::ObjectName,
            ranges: &'a [std::ops::Range<u64>],
        ) -> tombolo_env::BoxFuture<'a, $crate::Result<Vec<bytes::Bytes>>> {
            self.inner.read_ranges(request, name, ranges)
        }
    };
    (@ length) => {
        fn length<'a>(
            &'a self, request: $crate::Request, name: &'a $crate::ObjectName
        ) -> tombolo_env::BoxFuture<'a, $crate::Result<u64>> {
            self.inner.length(request, name)
        }
    };
    (@ list) => {
        fn list<'a>(
            &'a self,
            request: $crate::Request,
            prefix: &'a str,
            after: Option<&'a $crate::ObjectName>,
            limit: usize,
        ) -> tombolo_env::BoxFuture<'a, $crate::Result<$crate::Listed>> {
            self.inner.list(request, prefix, after, limit)
        }
    };
    (@ delete) => {
        fn delete<'a>(
            &'a self, request: $crate::Request, name: &'a $crate::ObjectName
        ) -> tombolo_env::BoxFuture<'a, $crate::Result<()>> {
            self.inner.delete(request, name)
        }
    };
    (@ copy) => {
        fn copy<'a>(
            &'a self,
            request: $crate::Request,
            from: &'a $crate::ObjectName,
            to: &'a $crate::ObjectName,
        ) -> tombolo_env::BoxFuture<'a, $crate::Result<$crate::PutOutcome>> {
            self.inner.copy(request, from, to)
        }
    };
    (@ place) => {
        fn place(&self, name: &$crate::ObjectName) -> Option<String> {
            self.inner.place(name)
        }
    };
    (@ adopt) => {
        fn adopt<'a>(
            &'a self,
            request: $crate::Request,
            place: &'a str,
            to: &'a $crate::ObjectName,
        ) -> tombolo_env::BoxFuture<'a, $crate::Result<Option<$crate::PutOutcome>>> {
            self.inner.adopt(request, place, to)
        }
    };
    (@ sweep) => {
        fn sweep(&self, request: $crate::Request) -> tombolo_env::BoxFuture<'_, $crate::Result<u64>> {
            self.inner.sweep(request)
        }
    };
    (@ facts) => {
        fn facts(
            &self, request: $crate::Request
        ) -> tombolo_env::BoxFuture<'_, $crate::Result<Vec<$crate::facts::Fact>>> {
            self.inner.facts(request)
        }
    };
    (@ meter) => {
        fn meter(&self) -> Option<&std::sync::Arc<$crate::Meter>> {
            self.inner.meter()
        }
    };
    (@ location) => {
        fn location(&self) -> Option<&$crate::object::location::StoreLocation> {
            self.inner.location()
        }
    };
    (@ performance) => {
        fn performance(&self) -> Option<$crate::StorePerformance> {
            self.inner.performance()
        }
    };
    (@ traits) => {
        fn traits(&self) -> $crate::StoreTraits {
            self.inner.traits()
        }
    };
    (@ survival) => {
        fn survival(&self) -> $crate::Survival {
            self.inner.survival()
        }
    };
    (@ describe) => {
        fn describe(&self) -> String {
            self.inner.describe()
        }
    };
    ($($method:ident)+) => {
        $(leave_to_inner!(@ $method);)+
    };
}

#[cfg(test)]
mod tests;
