// A run or other pictures with a slider: starts every one of the page that has not been started.
(() => {
  const unpack = text => {                             // base64, gzip and JSON, as Python packed it
    const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).json();
  };

  // What changes in the picture of a run, by the rules of `frame_paths` in Python; a test compares
  const framePaths = (data, run, k) => {
    const {x, steps, panel: {left, top, wide, high}} = data, t = data.times[k], on = run.on[k];
    const bar = i => `M${x[i]} ${run.low[k][i]}V${run.high[k][i]}`, arms = [...x.keys()];
    const seen = run.pulls.slice(0, t - 1).map((i, s) =>
      i < 0 ? "" : `M${x[i]} ${run.seen[s]}m-1.5-1.5l3 3m0-3l-3 3`);
    const now = t <= data.T ? run.pulls[t - 1] : -1, some = path => now < 0 ? "" : path;
    return {
      out: arms.filter(i => !on[i]).map(bar).join(""), on: arms.filter(i => on[i]).map(bar).join(""),
      dots: arms.filter(i => on[i]).map(i => `M${x[i]} ${run.mean[k][i]}h0`).join(""),
      seen: [...new Set(seen)].join(""),
      limit: run.limit[k] === null ? "" : `M${left} ${run.limit[k]}h${wide}`,
      guide: some(`M${x[now]} ${top - 2}V${top + high}`), now: some(bar(now)),
      arrow: some(`M${x[now]} ${top - 2}m-6-11h12l-6 11z`),
      obs: some(`M${x[now]} ${run.seen[t - 1]}m0-5l5 5l-5 5l-5-5z`),
      sofar: "M" + steps.slice(0, k + 1).map((at, j) => `${at} ${run.curve[j]}`).join("L"),
      dot: `M${steps[k]} ${run.curve[k]}h0`};
  };

  const show = (box, data, k) => {
    const {top, high} = data.chart, t = data.times[k];
    const draw = (name, path) => box.querySelector(name).setAttribute("d", path);
    data.runs.forEach((run, i) => {
      for (const [name, path] of Object.entries(framePaths(data, run, k)))
        draw(`.gb-r${i} .gb-${name}`, path);
      box.querySelector(`.gb-r${i} .gb-say`).textContent = run.say[k];
    });
    draw(".gb-cursor", `M${data.steps[k]} ${top - 4}V${top + high}`);
    return t > data.T ? `after ${data.T} ${data.word}${data.T > 1 ? "s" : ""}`
                      : `${data.word} ${t} of ${data.T}`;
  };

  // Pictures that were made before are put in place of each other
  const turn = (box, data, k) => {
    box.querySelector(".gb-still").innerHTML = data.frames[k];
    box.querySelector(".gb-say").textContent = data.say[k];
    return data.labels[k];
  };

  // The slider is an ordinary one, so the arrow keys, Home and End move it. While the run plays,
  // the sentences are not read aloud; who asked for less motion gets a slow play.
  const start = async box => {
    const data = await unpack(box.dataset.watch), last = (data.frames ?? data.times).length - 1;
    const slider = box.querySelector("input"), play = box.querySelector(".gb-play");
    let timer = null;
    const at = () => Number(slider.value);
    const go = k => {
      slider.value = Math.max(0, Math.min(last, k));
      const words = (data.frames ? turn : show)(box, data, at());
      box.querySelector("output").textContent = words;
      slider.setAttribute("aria-valuetext", words);
    };
    const live = mode => box.querySelectorAll(".gb-say").forEach(p => p.ariaLive = mode);
    const stop = () => { clearInterval(timer); timer = null; play.textContent = "Play";
                         live("polite"); go(at()); };
    play.addEventListener("click", () => {
      if (timer) return stop();
      if (at() === last) go(0);
      const slow = matchMedia("(prefers-reduced-motion: reduce)").matches;
      live("off");
      play.textContent = "Pause";
      timer = setInterval(() => at() < last ? go(at() + 1) : stop(), slow ? 1500 : data.frames ? 900 : 250);
    });
    slider.addEventListener("input", () => timer ? stop() : go(at()));
    const step = by => () => { if (timer) stop(); go(at() + by); };
    box.querySelector(".gb-back").addEventListener("click", step(-1));
    box.querySelector(".gb-next").addEventListener("click", step(1));
    go(data.start);
    box.classList.add("gb-ready");
  };
  for (const box of document.querySelectorAll(".gb-watch:not(.gb-begun)")) {
    box.classList.add("gb-begun");
    start(box);
  }
})();
