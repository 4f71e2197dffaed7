import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/** Keeps a share of the largest heap alive, and allocates for some seconds. Arguments: share, seconds, threads. */
public class Fill {
    static volatile Object latest;

    public static void main(String[] arguments) {
        double share = Double.parseDouble(arguments[0]);
        for (int thread = 0; thread < Integer.parseInt(arguments[2]); thread++) {
            Thread idle = new Thread(() -> { descend(200); try { Thread.sleep(1 << 20); } catch (InterruptedException e) { } });
            idle.setDaemon(true);
            idle.start();
        }
        List<byte[]> alive = new ArrayList<>();
        try {
            while (alive.size() * 16000L < share * Runtime.getRuntime().maxMemory()) alive.add(new byte[16000]);
            long end = System.currentTimeMillis() + 1000 * Long.parseLong(arguments[1]);
            Random random = new Random(1);
            for (long count = 0; System.currentTimeMillis() < end; count++) {
                latest = new byte[4000];
                if (count % 50 == 0) alive.set(random.nextInt(alive.size()), new byte[16000]);
            }
        } catch (OutOfMemoryError full) {
            // The heap is at its bound.
        }
    }

    static int descend(int depth) { return depth == 0 ? 0 : 1 + descend(depth - 1); }
}
