package tombolo.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.StringWriter;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import javax.tools.JavaCompiler;
import javax.tools.SimpleJavaFileObject;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What the documentation shows compiles. */
class DocumentationTest {
    @TempDir
    Path directory;

    @Test
    void examplesCompile() throws Exception {
        String page = Files.readString(Path.of("../../docs/java.md"));
        List<String> examples = Pattern.compile("```java\n(.*?)```", Pattern.DOTALL)
                .matcher(page)
                .results()
                .map((MatchResult found) -> found.group(1))
                .toList();
        assertTrue(examples.size() >= 3, "examples: " + examples.size());
        for (String example : examples) {
            String imports = example.lines()
                    .filter(line -> line.startsWith("import "))
                    .collect(Collectors.joining("\n"));
            String body = example.lines()
                    .filter(line -> !line.startsWith("import "))
                    .collect(Collectors.joining("\n"));
            compiles(imports + "\nclass Example { static void run() throws Exception {\n" + body + "\n} }\n");
        }
    }

    private void compiles(String source) {
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        var file = new SimpleJavaFileObject(URI.create("string:///Example.java"),
                SimpleJavaFileObject.Kind.SOURCE) {
            @Override
            public CharSequence getCharContent(boolean ignoreErrors) {
                return source;
            }
        };
        StringWriter said = new StringWriter();
        List<String> options = List.of("-classpath", System.getProperty("java.class.path"), "-d",
                directory.toString());
        boolean well = compiler.getTask(said, null, null, options, null, List.of(file)).call();
        assertEquals("", said.toString());
        assertTrue(well);
    }
}
