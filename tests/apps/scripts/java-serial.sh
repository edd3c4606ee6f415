cat > Work.java <<'EOF'
import java.util.*;
import java.util.concurrent.*;

public class Work {
    static long churn(long seed) {
        Map<Long, byte[]> kept = new HashMap<>();
        Random random = new Random(seed);
        long sum = 0;
        for (int number = 0; number < 400000; number++) {
            byte[] data = new byte[random.nextInt(400)];
            random.nextBytes(data);
            kept.put((long) random.nextInt(20000), data);
            sum = sum * 31 + Arrays.hashCode(data);
        }
        return sum + kept.size();
    }

    public static void main(String[] arguments) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(2);
        for (int step = 0; step < 24; step++) {
            List<Future<Long>> results = new ArrayList<>();
            for (int part = 0; part < 2; part++) {
                long seed = step * 2L + part;
                results.add(pool.submit(() -> churn(seed)));
            }
            for (Future<Long> result : results)
                System.out.println(step + " " + result.get());
        }
        pool.shutdown();
    }
}
EOF
java -Xmx128m -XX:+UseSerialGC Work.java
