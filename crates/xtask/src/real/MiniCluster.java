import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.protocol.HdfsConstants;

/**
 * A cluster of HDFS on free ports of this machine: `MiniCluster DIRECTORY PORT DATANODES USER`. The directory /data is the user's. Says "ready" when it
 * is; then obeys the lines of its standard input, and ends with it. Each line begins with a number, and so does its answer.
 */
public class MiniCluster {
    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(configuration, new File(arguments[0]))
            .nameNodePort(Integer.parseInt(arguments[1])).numDataNodes(Integer.parseInt(arguments[2])).build();
        cluster.waitActive();
        Path data = new Path("/data");
        DistributedFileSystem files = cluster.getFileSystem();
        files.mkdirs(data);
        files.setOwner(data, arguments[3], arguments[3]);
        System.out.println("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            try {
                System.out.println(words[0] + " ok " + obey(cluster, files, words));
            } catch (Exception error) {
                System.out.println(words[0] + " failed " + error);
            }
            System.out.flush();
        }
        System.exit(0);
    }

    static String obey(MiniDFSCluster cluster, DistributedFileSystem files, String[] words) throws Exception {
        switch (words[1]) {
            case "list":
                StringBuilder names = new StringBuilder();
                for (FileStatus status : files.listStatus(new Path(words[2]))) {
                    names.append(status.getPath().getName()).append(' ');
                }
                return names.toString().trim();
            case "write":
                try (FSDataOutputStream out = files.create(new Path(words[2]))) {
                    out.writeBytes(words[3]);
                }
                return "";
            case "rename":
                return String.valueOf(files.rename(new Path(words[2]), new Path(words[3])));
            case "quota":
                files.setQuota(new Path(words[2]), HdfsConstants.QUOTA_DONT_SET, Long.parseLong(words[3]));
                return "";
            case "safemode":
                files.setSafeMode(words[2].equals("on") ? HdfsConstants.SafeModeAction.SAFEMODE_ENTER : HdfsConstants.SafeModeAction.SAFEMODE_LEAVE);
                return "";
            case "restart":
                cluster.restartNameNode(true);
                return "";
            case "stop":
                cluster.stopDataNode(0);
                return "";
            default:
                throw new IllegalArgumentException(words[1]);
        }
    }
}
