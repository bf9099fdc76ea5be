"""Who is let in, and that nothing is asked of anybody else."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from tests.api.speaking import Served
from tests.browser.browsing import Browser, Page
from tests.browser.serving import FromTheWheel


def test_a_link_signs_in_once(served: Served, stranger: Page, browser: Browser) -> None:
    link = served.client.sign_in("/experiments")
    assert stranger.goto(link) == 200
    stranger.see("Experiments")
    assert urlsplit(stranger.run("return page.url()")).path == "/experiments"
    cookies = stranger.run("return context.cookies()")
    assert [(c["httpOnly"], c["sameSite"]) for c in cookies] == [(True, "Strict")]
    assert stranger.run("return page.evaluate(() => document.cookie)") == "", "no script can read it"
    another = browser.page()
    assert another.goto(link) == 403
    another.see("This link has been used or is too old")
    another.see("shoal open")
    assert another.axe() == []
    another.close()


def test_a_code_that_nobody_gave_out_is_refused(served: Served, stranger: Page) -> None:
    assert stranger.goto(f"http://{served.host}/sign-in?code=guessed&next=/experiments") == 403
    assert stranger.run("return context.cookies()") == []


def test_a_link_of_a_server_that_has_ended_is_too_old(alone: FromTheWheel, stranger: Page) -> None:
    """The minute that a link is good for is tested by tests/api, with a clock that can be set."""
    link = alone.client.sign_in("/experiments")
    alone.restart()
    assert stranger.goto(link) == 403
    stranger.see("This link has been used or is too old")
    assert stranger.run("return context.cookies()") == []


def test_without_signing_in_there_is_only_a_hint(served: Served, stranger: Page) -> None:
    assert stranger.goto(f"http://{served.host}/experiments") == 401
    stranger.see("shoal open")
    assert stranger.axe() == []
    requests = stranger.heard()["requests"]
    assert all(urlsplit(url).netloc == served.host for url in requests)


@pytest.mark.parametrize("next_", ["//elsewhere.example/", "/\\elsewhere.example", "https://elsewhere.example"])
def test_a_link_leads_to_no_other_site(served: Served, stranger: Page, next_: str) -> None:
    link = served.client.sign_in()
    stranger.run("await page.goto(args.link + '&next=' + encodeURIComponent(args.next))", link=link, next=next_)
    assert urlsplit(stranger.run("return page.url()")).netloc == served.host


def test_a_page_of_another_site_cannot_use_the_cookie(served: Served, page: Page) -> None:
    """It tries to stop the server: by a request of a script, and by a form."""
    attack = """
      const page_of_others = {contentType: 'text/html', body: '<p>'};
      await context.route('http://elsewhere.example/**', (route) => route.fulfill(page_of_others));
      const other = await context.newPage();
      await other.goto('http://elsewhere.example/');
      const answers = await other.evaluate(async (target) => {
        const asked = async (mode) => {
          try {
            const answer = await fetch(target + '/api/server/stop', {method: 'POST', mode, credentials: 'include'});
            return answer.status;
          } catch (error) { return 'refused'; }
        };
        return [await asked('cors'), await asked('no-cors')];
      }, args.target);
      const sent = other.waitForResponse((answer) => answer.url().endsWith('/api/server/stop'));
      await other.evaluate((target) => {
        document.body.innerHTML = `<form method=post action="${target}/api/server/stop"></form>`;
        document.forms[0].submit();
      }, args.target);
      const status = (await sent).status();
      await other.close();
      return [...answers, status];
    """
    answers = page.run(attack, target=f"http://{served.host}")
    assert answers[0] == "refused"
    assert answers[1] in (0, "refused"), "an answer that cannot be read"
    assert answers[2] in (401, 403)
    assert served.ask("GET", "/api/server").status == 200


def test_signing_out_ends_it(served: Served, browser: Browser) -> None:
    page = browser.page()
    page.goto(served.client.sign_in("/settings"))
    page.run("await page.getByRole('button', {name: /sign out/i}).click()")
    page.see("Not signed in")  # `shoal open` stands on the page of settings, too
    assert page.run("return context.cookies()") == []
    page.close()
