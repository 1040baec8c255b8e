// Opens the page of a run's link. Links from before the start page, and short ones, name no page.
const forward = () => {
  const { hash, search } = location;
  if (!/^#\d+&/.test(hash)) return;
  const [, page] = [["&trainer=", "trainers"], ["&oom.", "diagnose"], ["", "calculator"]].find(([key]) => hash.includes(key));
  location.replace(`${page}.html${search}${hash}`);
};
forward();
addEventListener("hashchange", forward);
