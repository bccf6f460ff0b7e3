package tombolo.kafka;

import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.state.internals.StoreQueryUtils;

/** What stores of every kind have of the database that each of them has to itself. */
abstract class DatabaseStore implements StateStore {
    private final String name;
    final StoreDatabase database;
    /** Set by {@link #init}. */
    StateStoreContext context;

    DatabaseStore(String name) {
        this.name = name;
        this.database = new StoreDatabase(name);
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public boolean persistent() {
        return true;
    }

    @Override
    public boolean isOpen() {
        return database.isOpen();
    }

    @Override
    public <R> QueryResult<R> query(Query<R> query, PositionBound bound, QueryConfig config) {
        return StoreQueryUtils.handleBasicQueries(query, bound, config, this, database.position(), context);
    }

    @Override
    public Position getPosition() {
        return database.position();
    }

    @Override
    @Deprecated
    public boolean managesOffsets() {
        return true;
    }

    @Override
    public Long committedOffset(TopicPartition partition) {
        return database.committedOffset(partition);
    }

    @Override
    public void commit(Map<TopicPartition, Long> changelogOffsets) {
        database.commit(changelogOffsets);
    }

    @Override
    @Deprecated
    public void flush() {
        database.flush();
    }

    @Override
    public void close() {
        database.close();
    }
}
