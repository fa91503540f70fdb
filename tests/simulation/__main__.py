"""`python -m tests.simulation`: runs seeds, and says how to repeat the one that fails."""
import sys, time, traceback
from tests.simulation.scenario import draw
from tests.simulation.world import Simulation
from tests.simulation.peers import Violated
first, count = int(sys.argv[1]), int(sys.argv[2])
t=time.time(); bad=0; kinds={}
for seed in range(first, first+count):
    sc = draw(seed)
    w = None
    try:
        w = Simulation(sc); w.run()
    except Exception as e:
        bad+=1
        msg=f"{type(e).__name__}: {e}"
        kinds.setdefault(msg[:60],[]).append(seed)
        print(seed, msg[:400])
        if not isinstance(e, Violated) and bad<6: traceback.print_exc()
print(count-bad,"passed",bad,"failed",f"{time.time()-t:.1f}s")
for k,v in sorted(kinds.items(), key=lambda x:-len(x[1])): print(len(v),k,v[:6])
