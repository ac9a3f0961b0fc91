// Say when somebody else has changed the campaign, or when the program has ended.
(() => {
  const news = document.querySelector("#news");
  const say = (words, link) => {
    if (news.textContent === words) return;
    news.replaceChildren(words);
    if (!link) return;
    const a = document.createElement("a");
    a.href = "./";
    a.textContent = words;
    news.replaceChildren(a);
  };
  const look = async () => {
    if (document.hidden) return;
    try {
      const answer = await fetch("revision", {cache: "no-store"});
      const now = answer.ok ? await answer.text() : news.dataset.seen;
      say(now === news.dataset.seen ? "" : "The campaign has changed: show what is new.", true);
    } catch {
      say("The program that serves this page has ended. What was recorded is on the disk.", false);
    }
  };
  setInterval(look, 4000);
  document.addEventListener("visibilitychange", look);
})();
